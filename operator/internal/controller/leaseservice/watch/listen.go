package watch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/operator/lease/leasestatus"
)

// maxStatusBytes bounds a status message. One of a hundred replicas has some ten kilobytes.
const maxStatusBytes = 1 << 20

// listening is the connection and the stream of one pod.
type listening struct {
	target  Target
	options Options
	hear    func(Report)
	lose    func(problem string)
}

// run listens until ctx ends. It keeps one connection, which reconnects itself, and opens the stream anew whenever
// it ends. The wait in between grows while nothing is heard, and is drawn from a range: after an operator restart
// all pods are listened to at once, and after a node failure many streams end at once.
func (l *listening) run(ctx context.Context) {
	conn, err := l.connect()
	if err != nil {
		l.lose(fmt.Sprintf("its address %q cannot be used", l.target.Address))
		return
	}
	defer func() {
		if err := conn.Close(); err != nil {
			l.options.Log.V(1).Info("closing the connection to a lease service pod", "pod", l.target.Pod, "cause", err.Error())
		}
	}()
	wait := l.options.MinRetry
	for {
		heard, err := l.stream(ctx, leasestatus.NewLeaseStatusServiceClient(conn))
		if ctx.Err() != nil {
			return
		}
		l.options.Log.V(1).Info("the status stream of a lease service pod ended", "pod", l.target.Pod, "address", l.target.Address, "cause", err.Error())
		l.lose(l.problem(err))
		if heard {
			wait = l.options.MinRetry
		}
		timer := l.options.Clock.NewTimer(wait/2 + rand.N(wait))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
		wait = min(2*wait, l.options.MaxRetry)
	}
}

func (l *listening) credentials() credentials.TransportCredentials {
	if l.target.Credentials == nil {
		return insecure.NewCredentials()
	}
	return l.target.Credentials
}

func (l *listening) connect() (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+l.target.Address,
		grpc.WithTransportCredentials(l.credentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return l.options.Dial(ctx, address) }),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: l.options.KeepaliveTime, Timeout: l.options.KeepaliveTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: l.options.MinRetry, Multiplier: 1.6, Jitter: 0.2, MaxDelay: l.options.MaxRetry},
			MinConnectTimeout: l.options.Answer,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxStatusBytes), grpc.WaitForReady(true)),
	)
}

// stream hears one stream to its end. Its first message is due within Answer: a process that takes connections and
// answers nothing would otherwise be listened to for ever. Later ones come when there is something to say; that the
// other side lives meanwhile is the connection's keepalive to notice.
func (l *listening) stream(ctx context.Context, client leasestatus.LeaseStatusServiceClient) (heard bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	first := l.options.Clock.AfterFunc(l.options.Answer, func() { cancel(context.DeadlineExceeded) })
	defer first.Stop()
	stream, err := client.WatchStatus(ctx, &leasestatus.WatchStatusRequest{})
	if err != nil {
		return false, err
	}
	for {
		message, err := stream.Recv()
		if err != nil {
			return heard, err
		}
		first.Stop()
		heard = true
		l.hear(reportOf(message.GetStatus()))
	}
}

func reportOf(s *leasestatus.GetStatusResponse) Report {
	report := Report{
		Leader:       s.GetIsLeader(),
		NamedLeader:  s.GetLeader(),
		ActiveLeases: max(s.GetActiveLeases(), 0),
		Serving:      s.GetReady(),
		Reason:       s.GetReason(),
		Version:      s.GetVersion(),
	}
	if report.Serving {
		report.Reason = ""
	}
	return report
}

// problem puts an error into words that end up in a status: of one kind of failure always the same ones, since the
// text that comes with it (ports, "reset" or "refused") differs from attempt to attempt.
func (l *listening) problem(err error) string {
	switch status.Code(err) {
	case codes.Unimplemented:
		return "its image has no status stream (dist.system.lease.LeaseStatusService/WatchStatus)"
	case codes.Unauthenticated, codes.PermissionDenied:
		return "it refuses to tell the operator its status"
	default:
		return "it does not answer the operator on port " + portOf(l.target.Address)
	}
}

func portOf(address string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return port
}
