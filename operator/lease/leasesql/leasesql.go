// Package leasesql keeps former holders of a lease from writing to an SQL database. The database itself remembers the
// largest fencing token it has seen of each lease, and refuses smaller ones:
//
//	fence, err := leasesql.New("holdfast_fences", leasesql.Dollar) // PostgreSQL
//	db.ExecContext(ctx, fence.Schema())
//	err = fence.Do(ctx, db, held, func(tx *sql.Tx) error {
//		_, err := tx.ExecContext(ctx, "UPDATE accounts SET ...")
//		return err
//	})
//
// It is safe whatever happens to a holder: one that was stopped for an hour between the check and its write cannot commit
// any more once a later holder has written. A later holder that has not written yet is not known to the database; write with its
// token first, be it nothing but the fence, to shut former ones out.
//
// Only exclusive leases fence like this. Of a shared lease or a semaphore several holders live at a time, and those with
// smaller tokens would be refused.
package leasesql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strconv"
)

// Held is a lease: *lease.Lease is one.
type Held interface {
	Name() string
	Token() int64
}

// Placeholder returns how a database names the n-th argument of a statement, from 1 on.
type Placeholder func(n int) string

// Question is for MySQL, MariaDB and SQLite: ?
func Question(int) string { return "?" }

// Dollar is for PostgreSQL and CockroachDB: $1
func Dollar(n int) string { return "$" + strconv.Itoa(n) }

// AtP is for SQL Server: @p1
func AtP(n int) string { return "@p" + strconv.Itoa(n) }

// Colon is for Oracle: :1
func Colon(n int) string { return ":" + strconv.Itoa(n) }

// StaleError says that a later holder of the lease has written already.
type StaleError struct {
	Name string
	// Token is the refused one, and Newest the largest the database has seen.
	Token, Newest int64
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("lease %q: token %d is stale; the database has seen %d", e.Name, e.Token, e.Newest)
}

// Fence is a table of tokens. It is safe for concurrent use.
type Fence struct{ schema, update, query, insert string }

var tableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$`)

// New makes a fence of a table, which may be qualified with a schema. See Schema for what it must be.
func New(table string, placeholder Placeholder) (*Fence, error) {
	if !tableName.MatchString(table) {
		return nil, fmt.Errorf("table is %q; letters, digits and _ are allowed, after a schema and a dot", table)
	}
	p := placeholder
	return &Fence{
		schema: "CREATE TABLE " + table + " (name VARCHAR(512) NOT NULL PRIMARY KEY, token BIGINT NOT NULL, writes BIGINT NOT NULL)",
		// Counting the writes makes the row change even if the token stays, since MySQL does not count rows that stay as they are.
		update: "UPDATE " + table + " SET token = " + p(1) + ", writes = writes + 1 WHERE name = " + p(2) + " AND token <= " + p(3),
		query:  "SELECT token FROM " + table + " WHERE name = " + p(1),
		insert: "INSERT INTO " + table + " (name, token, writes) VALUES (" + p(1) + ", " + p(2) + ", 1)",
	}, nil
}

// Schema returns the statement that makes the table. Names of leases are ASCII and case matters in them: where the default collation of
// the database ignores case, give the column one that does not.
func (f *Fence) Schema() string { return f.schema }

// Advance makes a token the newest of its lease, or fails with *StaleError if a newer one was seen. Call it first in the transaction
// that makes the guarded writes: until the end of the transaction, it keeps others of the same lease waiting. After any error the
// transaction must be rolled back; after one that is no *StaleError it may be repeated.
func (f *Fence) Advance(ctx context.Context, tx *sql.Tx, held Held) error {
	name, token := held.Name(), held.Token()
	if token <= 0 {
		return fmt.Errorf("lease %q: token is %d; tokens are positive", name, token)
	}
	done, err := tx.ExecContext(ctx, f.update, token, name, token)
	if err != nil {
		return fmt.Errorf("lease %q: write the fence: %w", name, err)
	}
	rows, err := done.RowsAffected()
	if err != nil {
		return fmt.Errorf("lease %q: write the fence: %w", name, err)
	}
	if rows > 0 {
		return nil
	}
	var newest int64
	err = tx.QueryRowContext(ctx, f.query, name).Scan(&newest)
	if err == nil {
		return &StaleError{Name: name, Token: token, Newest: newest}
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("lease %q: read the fence: %w", name, err)
	}
	// Of two first writers the primary key lets one pass. The other one fails here, and finds the row when it tries again.
	if _, err := tx.ExecContext(ctx, f.insert, name, token); err != nil {
		return fmt.Errorf("lease %q: make the fence (another transaction may have been first): %w", name, err)
	}
	return nil
}

// Do runs a function in a transaction under a lease, and commits it if the function succeeds. It fails with *StaleError, and has
// changed nothing, if a later holder has written.
func (f *Fence) Do(ctx context.Context, db *sql.DB, held Held, write func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("lease %q: begin a transaction: %w", held.Name(), err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing once it is committed
	if err := f.Advance(ctx, tx, held); err != nil {
		return err
	}
	if err := write(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("lease %q: commit: %w", held.Name(), err)
	}
	return nil
}
