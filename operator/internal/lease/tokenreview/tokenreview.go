// Package tokenreview asks a Kubernetes API server whose a ServiceAccount token is. It makes the one HTTP call by itself:
// client-go would add more to the lease service than everything else in it but etcd.
package tokenreview

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

const (
	inClusterDir = "/var/run/secrets/kubernetes.io/serviceaccount/"
	reviewPath   = "/apis/authentication.k8s.io/v1/tokenreviews"
	callTimeout  = 5 * time.Second
	// freshFor is how long an answer counts, and refusedFor one that refused.
	freshFor   = time.Minute
	refusedFor = 10 * time.Second
	// staleFor is how long an answer counts while the API server cannot be asked, if the token lasts as long: leases shall not
	// be lost because the API server is down.
	staleFor   = time.Hour
	maxEntries = 10_000
	maxToken   = 16 << 10
	maxAnswer  = 1 << 20
)

// ErrRefused says that the API server does not know the token, or not for our audience.
var ErrRefused = errors.New("the token is not valid here")

// Config says where to ask. The files are read anew for each question, since they are rotated.
type Config struct {
	// Server is the API server's URL.
	Server string
	// CAFile is the authorities (PEM) of its certificate, TokenFile the token to ask it with.
	CAFile, TokenFile string
	// Audience is what tokens must be issued for.
	Audience string
}

// InCluster returns the configuration of a pod, from what the kubelet gives to each.
func InCluster(audience string) (Config, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return Config{}, errors.New("$KUBERNETES_SERVICE_HOST and $KUBERNETES_SERVICE_PORT are not set: this is no pod of a cluster")
	}
	return Config{
		Server: "https://" + net.JoinHostPort(host, port), CAFile: inClusterDir + "ca.crt", TokenFile: inClusterDir + "token",
		Audience: audience,
	}, nil
}

// Reviewer tells whose tokens are. It remembers answers for a minute, and longer while it cannot ask. It is safe for concurrent use.
type Reviewer struct {
	config Config
	now    func() time.Time
	calls  singleflight.Group

	mu    sync.Mutex
	known map[key]answer
}

type key = [sha256.Size]byte

type answer struct {
	identity string // empty: refused
	fresh    time.Time
	stale    time.Time
}

// New makes a reviewer.
func New(config Config, now func() time.Time) *Reviewer {
	return &Reviewer{config: config, now: now, known: map[key]answer{}}
}

// Review returns the user name of a token, system:serviceaccount:<namespace>:<name>. It fails with ErrRefused, or with another error
// if the API server cannot be asked.
func (r *Reviewer) Review(ctx context.Context, token string) (string, error) {
	if len(token) > maxToken {
		return "", fmt.Errorf("%w: it has %d bytes; %d are allowed", ErrRefused, len(token), maxToken)
	}
	id := sha256.Sum256([]byte(token))
	r.mu.Lock()
	known, ok := r.known[id]
	r.mu.Unlock()
	if ok && r.now().Before(known.fresh) {
		return known.result()
	}
	// The call is shared with others that present the token, and so not bound to the context of one.
	got := r.calls.DoChan(string(id[:]), func() (any, error) { return r.ask(id, token) })
	select {
	case result := <-got:
		if result.Err == nil {
			return result.Val.(answer).result()
		}
		if ok && known.identity != "" && r.now().Before(known.stale) {
			return known.identity, nil
		}
		return "", result.Err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (a answer) result() (string, error) {
	if a.identity == "" {
		return "", ErrRefused
	}
	return a.identity, nil
}

func (r *Reviewer) ask(id key, token string) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	identity, err := r.config.review(ctx, token)
	if err != nil {
		return answer{}, err
	}
	now := r.now()
	a := answer{identity: identity, fresh: now.Add(freshFor), stale: now.Add(staleFor)}
	if identity == "" {
		a.fresh = now.Add(refusedFor)
	}
	if expiry, ok := expiryOf(token); ok {
		a.stale = earlier(a.stale, expiry)
		a.fresh = earlier(a.fresh, expiry)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) >= maxEntries {
		clear(r.known) // they are asked for anew, each when it is needed
	}
	r.known[id] = a
	return a, nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// expiryOf reads when a token expires. It only ever shortens what the API server said about the token.
func expiryOf(token string) (time.Time, bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Exp int64 `json:"exp"`
	}
	if err != nil || json.Unmarshal(payload, &claims) != nil || claims.Exp == 0 {
		return time.Time{}, false
	}
	return time.Unix(claims.Exp, 0), true
}

// review is the parts of authentication.k8s.io/v1 TokenReview that matter here.
type review struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Spec       reviewSpec   `json:"spec"`
	Status     reviewStatus `json:"status"`
}

type reviewSpec struct {
	Token     string   `json:"token"`
	Audiences []string `json:"audiences"`
}

type reviewStatus struct {
	Authenticated bool     `json:"authenticated"`
	Audiences     []string `json:"audiences"`
	User          struct {
		Username string `json:"username"`
	} `json:"user"`
}

// review asks the API server, and returns an empty name if it refuses the token.
func (c Config) review(ctx context.Context, token string) (string, error) {
	body, err := json.Marshal(review{
		APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview", Spec: reviewSpec{Token: token, Audiences: []string{c.Audience}},
	})
	if err != nil {
		return "", fmt.Errorf("encode a TokenReview: %w", err)
	}
	client, own, err := c.client()
	if err != nil {
		return "", err
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(c.Server, "/")+reviewPath, bytes.NewReader(body))
	if err != nil {
		return "", fmt.Errorf("API server %q: %w", c.Server, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+own)
	resp, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("ask for a TokenReview: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated && resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("ask for a TokenReview: the API server answers %s (the service's account needs the ClusterRole system:auth-delegator)", resp.Status)
	}
	var got review
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&got); err != nil {
		return "", fmt.Errorf("decode a TokenReview: %w", err)
	}
	// An API server that does not look at audiences names none, and its answer says nothing about ours.
	if !got.Status.Authenticated || !slices.Contains(got.Status.Audiences, c.Audience) {
		return "", nil
	}
	return got.Status.User.Username, nil
}

func (c Config) client() (client *http.Client, token string, err error) {
	authorities, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, "", fmt.Errorf("read the API server's authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		return nil, "", fmt.Errorf("%q holds no PEM certificate", c.CAFile)
	}
	own, err := os.ReadFile(c.TokenFile)
	if err != nil {
		return nil, "", fmt.Errorf("read the own token: %w", err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	return &http.Client{Transport: transport}, strings.TrimSpace(string(own)), nil
}
