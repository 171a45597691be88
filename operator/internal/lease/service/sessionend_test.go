package service_test

import (
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// ofSessions returns the stacks of the goroutines that work for sessions.
func ofSessions(t *testing.T) []string {
	t.Helper()
	var all strings.Builder
	require.NoError(t, pprof.Lookup("goroutine").WriteTo(&all, 2))
	var stacks []string
	for stack := range strings.SplitSeq(all.String(), "\n\n") {
		if strings.Contains(stack, "lease/server.(*session") {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}

// However a session ends, nothing goes on for it, and nothing it asked for stays in line.
func TestNothingIsLeftOfASessionThatEnded(t *testing.T) {
	replica := leasetest.Start(t, leasetest.Options("alone"))
	client := leasev1.NewLeaseServiceClient(leasetest.Dial(t, replica.Address))
	for how, end := range map[string]func(s *session, cut context.CancelFunc){
		"cut":                    func(_ *session, cut context.CancelFunc) { cut() },
		"half-closed, then cut":  func(s *session, cut context.CancelFunc) { require.NoError(t, s.stream.CloseSend()); cut() },
		"closed, then cut":       func(s *session, cut context.CancelFunc) { s.send(closeRequest()); cut() },
		"cut with calls at once": func(s *session, cut context.CancelFunc) { callMuch(s); cut() },
		"closed with calls at once": func(s *session, cut context.CancelFunc) {
			callMuch(s)
			s.send(closeRequest())
			cut()
		},
	} {
		t.Run(how, func(t *testing.T) {
			holder := acquire(t, client, "wanted", "holder", time.Minute)
			for i := range 10 {
				ctx, cut := context.WithCancel(within(t, time.Minute))
				defer cut()
				stream, err := client.Session(ctx)
				require.NoError(t, err)
				s := &session{t: t, stream: stream}
				s.send(&leasev1.SessionRequest{Message: &leasev1.SessionRequest_Open{Open: &leasev1.SessionOpen{Ttl: durationpb.New(time.Second)}}})
				require.NotNil(t, s.next().GetOpened())
				s.granted(s.acquire(fmt.Sprintf("own/%d", i), true))
				s.acquire("wanted", true)
				require.NotNil(t, s.until(func(r *leasev1.SessionResponse) bool { return r.GetQueued() != nil }))
				end(s, cut)
			}
			require.Eventually(t, func() bool { return len(ofSessions(t)) == 0 }, 20*time.Second, 20*time.Millisecond,
				"goroutines of sessions that are over")
			got, err := client.Get(t.Context(), &leasev1.GetRequest{Name: "wanted"})
			require.NoError(t, err)
			require.Zero(t, got.GetLease().GetWaiters())
			_, err = client.Release(t.Context(), &leasev1.ReleaseRequest{Name: "wanted", Token: holder.GetToken()})
			require.NoError(t, err)
		})
	}
}

func closeRequest() *leasev1.SessionRequest {
	return &leasev1.SessionRequest{Message: &leasev1.SessionRequest_Close{Close: &leasev1.SessionClose{}}}
}

// callMuch asks for much that takes a commit each, and reads no answer.
func callMuch(s *session) {
	for i := range 50 {
		s.acquire(fmt.Sprintf("much/%d", i), i%2 == 0)
		s.send(&leasev1.SessionRequest{Message: &leasev1.SessionRequest_Release{
			Release: &leasev1.ReleaseRequest{Name: "not-held", Token: int64(i + 1)},
		}})
	}
}
