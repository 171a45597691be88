// Package tokenreview asks a Kubernetes API server whose a ServiceAccount token is. It makes the one HTTP call by itself:
// client-go would add more to the lease service than everything else in it but etcd.
package tokenreview

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
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
	staleFor  = time.Hour
	maxToken  = 16 << 10
	maxAnswer = 1 << 20
	// maxKnown and maxRefused bound how many answers are remembered. Whoever can connect can make up tokens, so what was refused has little
	// room, and takes none from what was not.
	maxKnown   = 10_000
	maxRefused = 1_000
	// parallel is how many tokens are asked about at a time that were not known before, and as many again that were.
	parallel = 4
	// leeway is how long after its end a token is still asked about: the API server's clock may be behind.
	leeway = time.Minute
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
	// first and again are the places of reviews under way, of tokens that were not known before and of those that were: whoever makes up
	// tokens must not hold up the others.
	first, again chan struct{}

	mu             sync.Mutex
	known, refused cache
}

type key = [sha256.Size]byte

type answer struct {
	identity string // empty: refused
	fresh    time.Time
	stale    time.Time
}

// New makes a reviewer.
func New(config Config, now func() time.Time) *Reviewer {
	return &Reviewer{
		config: config, now: now, known: newCache(maxKnown), refused: newCache(maxRefused),
		first: make(chan struct{}, parallel), again: make(chan struct{}, parallel),
	}
}

// Review returns the user name of a token, system:serviceaccount:<namespace>:<name>. It fails with ErrRefused, or with another error
// if the API server cannot be asked. It is not asked about what cannot be a token for our audience.
func (r *Reviewer) Review(ctx context.Context, token string) (string, error) {
	claim, err := r.check(token)
	if err != nil {
		return "", err
	}
	id := sha256.Sum256([]byte(token))
	known, ok := r.find(id)
	if ok && r.now().Before(known.fresh) {
		return known.result()
	}
	places := r.first
	if ok && known.identity != "" {
		places = r.again
	}
	// The call is shared with others that present the token, and so not bound to the context of one.
	got := r.calls.DoChan(string(id[:]), func() (any, error) { return r.ask(id, token, claim, places) })
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

func (r *Reviewer) find(id key) (answer, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a, ok := r.known.answers[id]; ok {
		return a, true
	}
	a, ok := r.refused.answers[id]
	return a, ok
}

// keep remembers the last answer about a token.
func (r *Reviewer) keep(id key, a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.identity == "" {
		delete(r.known.answers, id)
		r.refused.put(id, a)
		return
	}
	delete(r.refused.answers, id)
	r.known.put(id, a)
}

func (a answer) result() (string, error) {
	if a.identity == "" {
		return "", ErrRefused
	}
	return a.identity, nil
}

func (r *Reviewer) ask(id key, token string, claims claims, places chan struct{}) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
	case <-ctx.Done():
		return answer{}, errors.New("too many tokens are being reviewed")
	}
	identity, err := r.config.review(ctx, token)
	if err != nil {
		return answer{}, err
	}
	now := r.now()
	a := answer{identity: identity, fresh: now.Add(freshFor), stale: now.Add(staleFor)}
	if identity == "" {
		a.fresh = now.Add(refusedFor)
	}
	if claims.Expiry != 0 {
		a.stale, a.fresh = earlier(a.stale, claims.expiry()), earlier(a.fresh, claims.expiry())
	}
	r.keep(id, a)
	return a, nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
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
