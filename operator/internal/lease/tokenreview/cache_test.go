package tokenreview

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// jwt makes up a token.
func jwt(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".signature"
}

// apiServer stands for an API server that knows a token if it says so, and counts how often it was asked and by how many at a time.
type apiServer struct {
	asked, open, most atomic.Int32
	// hold, if set, is waited for before an answer.
	hold chan struct{}
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.asked.Add(1)
	open := a.open.Add(1)
	defer a.open.Add(-1)
	for most := a.most.Load(); open > most && !a.most.CompareAndSwap(most, open); most = a.most.Load() {
	}
	if a.hold != nil {
		<-a.hold
	}
	var asked review
	_ = json.NewDecoder(r.Body).Decode(&asked) // an empty question is refused
	claims := struct {
		Known bool `json:"known"`
	}{}
	if payload, err := base64.RawURLEncoding.DecodeString(asked.Spec.Token[4 : len(asked.Spec.Token)-len(".signature")]); err == nil {
		_ = json.Unmarshal(payload, &claims)
	}
	asked.Status.Authenticated, asked.Status.Audiences, asked.Status.User.Username = claims.Known, asked.Spec.Audiences, "someone"
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(asked) // the test sees an answer that is missing
}

func newReviewer(t *testing.T, api *apiServer, now func() time.Time) *Reviewer {
	t.Helper()
	server := httptest.NewTLSServer(api)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	ca, token := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	require.NoError(t, os.WriteFile(token, []byte("own"), 0o600))
	return New(Config{Server: server.URL, CAFile: ca, TokenFile: token, Audience: "us"}, now)
}

// Whoever makes up tokens can neither make the reviewer forget those that are valid nor fill its memory.
func TestMadeUpTokensDoNotPushOutValidOnes(t *testing.T) {
	now := time.Unix(1000, 0)
	api := &apiServer{}
	r := newReviewer(t, api, func() time.Time { return now })
	valid := jwt(`{"aud":["us"],"known":true}`)
	identity, err := r.Review(t.Context(), valid)
	require.NoError(t, err)
	assert.Equal(t, "someone", identity)
	for i := range 2 * maxKnown {
		r.keep(key{byte(i), byte(i >> 8), byte(i >> 16)}, answer{fresh: now.Add(refusedFor)})
	}
	assert.Len(t, r.refused.answers, maxRefused)
	asked := api.asked.Load()
	_, err = r.Review(t.Context(), valid)
	require.NoError(t, err)
	assert.Equal(t, asked, api.asked.Load(), "it is remembered")

	oldest, newest := key{0, 0, 0xff}, key{1, 0, 0xff}
	r.keep(oldest, answer{fresh: now})
	for i := range maxRefused - 1 {
		r.keep(key{byte(i), byte(i >> 8), 0xee}, answer{fresh: now})
	}
	_, ok := r.find(oldest)
	assert.True(t, ok)
	r.keep(newest, answer{fresh: now})
	_, ok = r.find(oldest)
	assert.False(t, ok, "the oldest made place")
	_, ok = r.find(newest)
	assert.True(t, ok)
}

// What cannot be a token for us is refused without a question.
func TestWhatIsNoTokenForUsIsNotAskedAbout(t *testing.T) {
	now := time.Unix(10_000, 0)
	api := &apiServer{}
	r := newReviewer(t, api, func() time.Time { return now })
	for what, token := range map[string]string{
		"no JWT": "x", "not even JSON": "a.b.c", "another audience": jwt(`{"aud":["others"],"known":true}`), "no audience": jwt(`{"known":true}`),
		"expired": jwt(`{"aud":"us","exp":9000,"known":true}`),
	} {
		_, err := r.Review(t.Context(), token)
		require.ErrorIs(t, err, ErrRefused, what)
	}
	assert.Zero(t, api.asked.Load())
	for _, token := range []string{jwt(`{"aud":"us","exp":9990,"known":true}`), jwt(`{"aud":["others","us"],"exp":11000,"known":true}`)} {
		_, err := r.Review(t.Context(), token)
		require.NoError(t, err)
	}
}

// However many tokens are presented at once, few are asked about at a time, and those that were known before do not wait behind the others.
func TestFewTokensAreReviewedAtATime(t *testing.T) {
	var ahead atomic.Int64
	api := &apiServer{}
	r := newReviewer(t, api, func() time.Time { return time.Unix(1000, ahead.Load()) })
	valid := jwt(`{"aud":"us","known":true}`)
	_, err := r.Review(t.Context(), valid)
	require.NoError(t, err)
	ahead.Store(int64(2 * freshFor))
	for range parallel {
		r.first <- struct{}{} // as many are under way
	}
	_, err = r.Review(t.Context(), valid)
	require.NoError(t, err, "it was known")
	for range parallel {
		<-r.first
	}

	api.hold = make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 4 * parallel {
		wg.Go(func() {
			_, err := r.Review(ctx, jwt(fmt.Sprintf(`{"aud":"us","known":true,"n":%d}`, i)))
			assert.NoError(t, err)
		})
	}
	for range 4 * parallel {
		api.hold <- struct{}{}
	}
	wg.Wait()
	assert.LessOrEqual(t, api.most.Load(), int32(parallel))
}
