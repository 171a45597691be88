package leasesql_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	_ "modernc.org/sqlite" // a real SQL engine without cgo

	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leasesql"
)

// token stands for a lease that is held with it.
type token int64

func (token) Name() string   { return "writer" }
func (t token) Token() int64 { return int64(t) }

func open(t *testing.T) (*leasesql.Fence, *sql.DB) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "db")+"?_pragma=busy_timeout(10000)&_txlock=immediate")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	fence, err := leasesql.New("fences", leasesql.Question)
	require.NoError(t, err)
	for _, statement := range []string{fence.Schema(), "CREATE TABLE register (value BIGINT NOT NULL)", "INSERT INTO register VALUES (0)"} {
		_, err = db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	return fence, db
}

func set(ctx context.Context, value int64) func(*sql.Tx) error {
	return func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE register SET value = ?", value)
		return err
	}
}

func value(t *testing.T, db *sql.DB) int64 {
	t.Helper()
	var got int64
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT value FROM register").Scan(&got))
	return got
}

func TestStaleTokensAreRefused(t *testing.T) {
	fence, db := open(t)
	ctx := t.Context()
	require.NoError(t, fence.Do(ctx, db, token(5), set(ctx, 1)))
	require.NoError(t, fence.Do(ctx, db, token(5), set(ctx, 2)), "the holder goes on")
	require.NoError(t, fence.Do(ctx, db, token(7), set(ctx, 3)))
	var stale *leasesql.StaleError
	require.ErrorAs(t, fence.Do(ctx, db, token(5), set(ctx, 4)), &stale)
	require.Equal(t, leasesql.StaleError{Name: "writer", Token: 5, Newest: 7}, *stale)
	require.EqualValues(t, 3, value(t, db))

	// What is rolled back has not been seen.
	failed := errors.New("failed")
	require.ErrorIs(t, fence.Do(ctx, db, token(9), func(*sql.Tx) error { return failed }), failed)
	require.NoError(t, fence.Do(ctx, db, token(7), set(ctx, 5)))
	require.Error(t, fence.Do(ctx, db, token(0), set(ctx, 6)))
	require.EqualValues(t, 5, value(t, db))
}

// However writers of different tokens interleave, the order of their writes is that of their tokens.
func TestWritesAreInTheOrderOfTokens(t *testing.T) {
	fence, db := open(t)
	_, err := db.ExecContext(t.Context(), "CREATE TABLE log (id INTEGER PRIMARY KEY AUTOINCREMENT, token BIGINT NOT NULL)")
	require.NoError(t, err)
	var wg sync.WaitGroup
	for holder := range 4 {
		wg.Go(func() {
			for i := range 10 {
				held := token(1 + 4*i + holder)
				err := fence.Do(t.Context(), db, held, func(tx *sql.Tx) error {
					_, err := tx.ExecContext(t.Context(), "INSERT INTO log (token) VALUES (?)", held.Token())
					return err
				})
				var stale *leasesql.StaleError
				if err != nil && !errors.As(err, &stale) {
					assert.NoError(t, err)
				}
			}
		})
	}
	wg.Wait()
	rows, err := db.QueryContext(t.Context(), "SELECT token FROM log ORDER BY id")
	require.NoError(t, err)
	defer rows.Close()
	last, count := int64(0), 0
	for ; rows.Next(); count++ {
		var got int64
		require.NoError(t, rows.Scan(&got))
		require.Greater(t, got, last)
		last = got
	}
	require.NoError(t, rows.Err())
	require.Positive(t, count)
}

// A holder that was stopped for longer than its TTL writes late.
func TestALateWriterOfARealLease(t *testing.T) {
	fence, db := open(t)
	client, err := lease.Dial(leasetest.Start(t, leasetest.Options("alone")).Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	first, err := client.Acquire(ctx, "writer")
	require.NoError(t, err)
	require.NoError(t, fence.Do(ctx, db, first, set(ctx, 1)))
	require.NoError(t, first.Release(ctx))
	second, err := client.Acquire(ctx, "writer")
	require.NoError(t, err)
	require.NoError(t, fence.Do(ctx, db, second, set(ctx, 2)))
	var stale *leasesql.StaleError
	require.ErrorAs(t, fence.Do(ctx, db, first, set(ctx, 3)), &stale)
	require.EqualValues(t, 2, value(t, db))
	require.NoError(t, second.Release(ctx))
}

func TestNew(t *testing.T) {
	for _, table := range []string{"", "a b", "a;b", "a.b.c", "1a", "a--"} {
		_, err := leasesql.New(table, leasesql.Question)
		require.ErrorContains(t, err, "table", "%q", table)
	}
	fence, err := leasesql.New("app.fences", leasesql.Dollar)
	require.NoError(t, err)
	require.Contains(t, fence.Schema(), "app.fences")
}
