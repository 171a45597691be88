package promquery_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/operator/internal/promquery"
)

func result(kind, value string) string {
	return `{"status":"success","data":{"resultType":"` + kind + `","result":` + value + `}}`
}

func TestQuery(t *testing.T) {
	series := func(value string) string { return `{"metric":{"pod":"a"},"value":[1700000000,"` + value + `"]}` }
	for _, each := range []struct {
		name, body string
		status     int
		want       []float64
		err        string
	}{
		{name: "a scalar", body: result("scalar", `[1700000000,"0.5"]`), want: []float64{0.5}},
		{name: "a vector", body: result("vector", `[`+series("1")+`,`+series("2.5")+`]`), want: []float64{1, 2.5}},
		{name: "no data", body: result("vector", `[]`), want: []float64{}},
		{name: "a range", body: result("matrix", `[]`), err: "gives a matrix"},
		{name: "a query that does not parse", status: 400, body: `{"status":"error","errorType":"bad_data","error":"1:3: parse error"}`, err: "refused by Prometheus: 1:3: parse error"},
		{name: "an outage", status: 503, body: "down", err: "an error of type server_error from Prometheus"},
		{name: "no JSON", body: "<html>", err: "an error of type bad_response from Prometheus"},
		{name: "more than a number", body: result("vector", `[`+strings.Repeat(series("1")+",", 40000)+series("1")+`]`), err: "an error of type bad_response from Prometheus"},
	} {
		t.Run(each.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.FormValue("query") != "up" || !strings.HasSuffix(r.URL.Path, "/api/v1/query") {
					t.Errorf("asked for %s %s", r.URL.Path, r.FormValue("query"))
				}
				if each.status != 0 {
					w.WriteHeader(each.status)
				}
				_, _ = w.Write([]byte(each.body))
			}))
			t.Cleanup(server.Close)
			got, err := promquery.New(time.Minute).Query(t.Context(), server.URL+"/prometheus", "up")
			if each.err != "" {
				require.ErrorContains(t, err, each.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, each.want, got)
		})
	}
}

// Where an allowed server leads on was not allowed.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var asked atomic.Bool
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Store(true) }))
	t.Cleanup(elsewhere.Close)
	server := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	t.Cleanup(server.Close)
	_, err := promquery.New(time.Minute).Query(t.Context(), server.URL, "up")
	require.Error(t, err)
	require.False(t, asked.Load())
}

// The texts carry no port of a connection, since they go into a status.
func TestFailuresAreEqual(t *testing.T) {
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the server does not notice that the client has gone
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)
	_, err := promquery.New(50*time.Millisecond).Query(t.Context(), silent.URL, "up")
	require.EqualError(t, err, "no answer of Prometheus in time")

	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	_, err = promquery.New(time.Minute).Query(t.Context(), gone.URL, "up")
	require.EqualError(t, err, "could not reach Prometheus, or read its answer")
}
