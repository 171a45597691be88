// Package promquery asks Prometheus for numbers.
package promquery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// maxAnswer is the most bytes of an answer that are read. A query for a number has a short one.
const maxAnswer = 1 << 20

// Client asks servers that have the HTTP API of Prometheus. It is safe for concurrent use.
type Client struct {
	http    *http.Client
	timeout time.Duration
}

// New makes a client whose queries take at most a time.
func New(timeout time.Duration) *Client {
	return &Client{
		timeout: timeout,
		http: &http.Client{
			Transport: limited{http.DefaultTransport},
			// The URL was allowed by somebody; where it leads on was not.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Query returns the values of the series that a query gives at this moment; none is no error. The text of an error is equal
// for equal failures: it has no ports and no times of its own.
func (c *Client) Query(ctx context.Context, url, query string) ([]float64, error) {
	client, err := api.NewClient(api.Config{Address: url, Client: c.http})
	if err != nil {
		return nil, fmt.Errorf("%s is no URL of Prometheus", url)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	answer, _, err := promv1.NewAPI(client).Query(ctx, query, time.Time{})
	if err != nil {
		return nil, inWords(ctx, err)
	}
	switch value := answer.(type) {
	case *model.Scalar:
		return []float64{float64(value.Value)}, nil
	case model.Vector:
		values := make([]float64, 0, len(value))
		for _, sample := range value {
			values = append(values, float64(sample.Value))
		}
		return values, nil
	}
	return nil, fmt.Errorf("the query gives a %s, and not a number or an instant vector", answer.Type())
}

func inWords(ctx context.Context, err error) error {
	var refused *promv1.Error
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errors.New("no answer of Prometheus in time")
	case !errors.As(err, &refused):
		return errors.New("could not reach Prometheus, or read its answer")
	case refused.Type == promv1.ErrBadData, refused.Type == promv1.ErrExec:
		return fmt.Errorf("refused by Prometheus: %s", refused.Msg)
	}
	return fmt.Errorf("an error of type %s from Prometheus", refused.Type)
}

// limited cuts long answers off, which then don't decode.
type limited struct{ http.RoundTripper }

func (l limited) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := l.RoundTripper.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(response.Body, maxAnswer), response.Body}
	return response, nil
}
