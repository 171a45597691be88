package lease_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// patience is how long anything may take that is certain to come.
const patience = 20 * time.Second

// scripted is a lease service whose answers a test writes. It answers opens by itself.
type scripted struct {
	leasev1.UnimplementedLeaseServiceServer
	opened  *leasev1.SessionOpened
	streams chan *scriptedStream
	// confirms has the keepalives that were called for. Each waits until the test lets it go on.
	confirms chan confirming
}

type confirming struct {
	*leasev1.KeepAliveRequest
	goOn chan struct{}
}

// scriptedStream is a session seen from the service.
type scriptedStream struct {
	grpc.BidiStreamingServer[leasev1.SessionRequest, leasev1.SessionResponse]
	open     *leasev1.SessionOpen
	requests chan *leasev1.SessionRequest
	end      chan struct{}
}

// script starts a service whose sessions have a TTL, and a client of it.
func script(t *testing.T, ttl time.Duration) (*scripted, *lease.Client) {
	t.Helper()
	s := &scripted{
		streams: make(chan *scriptedStream, 10), confirms: make(chan confirming),
		opened: &leasev1.SessionOpened{Ttl: durationpb.New(ttl), HeartbeatInterval: durationpb.New(ttl / 3), Batches: true},
	}
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	leasev1.RegisterLeaseServiceServer(server, s)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("passthrough:///scripted", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	client := lease.New(conn)
	t.Cleanup(func() { _ = client.Close() })
	return s, client
}

func (s *scripted) Session(stream grpc.BidiStreamingServer[leasev1.SessionRequest, leasev1.SessionResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	ss := &scriptedStream{BidiStreamingServer: stream, open: first.GetOpen(), requests: make(chan *leasev1.SessionRequest, 1000), end: make(chan struct{})}
	if err := stream.Send(&leasev1.SessionResponse{Id: first.GetId(), Message: &leasev1.SessionResponse_Opened{Opened: s.opened}}); err != nil {
		return err
	}
	go func() {
		for {
			got, err := stream.Recv()
			if err != nil {
				return
			}
			if batch := got.GetBatch(); batch != nil {
				for _, r := range batch.GetRequests() {
					ss.requests <- r
				}
				continue
			}
			ss.requests <- got
		}
	}()
	s.streams <- ss
	select {
	case <-ss.end:
		return status.Error(codes.Unavailable, "the stream is cut")
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
}

func (s *scripted) KeepAlive(ctx context.Context, r *leasev1.KeepAliveRequest) (*leasev1.KeepAliveResponse, error) {
	c := confirming{r, make(chan struct{})}
	select {
	case s.confirms <- c:
		select {
		case <-c.goOn:
		case <-ctx.Done():
		}
		return &leasev1.KeepAliveResponse{Ttl: durationpb.New(time.Minute), ExpiresIn: durationpb.New(time.Minute)}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Release takes what a client gives back by a call of its own.
func (s *scripted) Release(context.Context, *leasev1.ReleaseRequest) (*leasev1.ReleaseResponse, error) {
	return &leasev1.ReleaseResponse{}, nil
}

// stream returns the next stream that the client opens.
func (s *scripted) stream(t *testing.T) *scriptedStream {
	t.Helper()
	select {
	case ss := <-s.streams:
		return ss
	case <-time.After(patience):
		t.Fatal("no stream is opened")
		return nil
	}
}

// until reads what the client sends until a message fits.
func (ss *scriptedStream) until(t *testing.T, what string, fits func(*leasev1.SessionRequest) bool) *leasev1.SessionRequest {
	t.Helper()
	late := time.After(patience)
	for {
		select {
		case r := <-ss.requests:
			if fits(r) {
				return r
			}
		case <-late:
			t.Fatal("the client does not send ", what)
			return nil
		}
	}
}

func (ss *scriptedStream) tell(t *testing.T, id uint64, r *leasev1.SessionResponse) {
	t.Helper()
	r.Id = id
	require.NoError(t, ss.Send(r))
}

// grant answers the client's next acquire with a lease that lives for a time from now.
func (ss *scriptedStream) grant(t *testing.T, token int64, ttl, expiresIn time.Duration) {
	t.Helper()
	asked := ss.until(t, "an acquire", func(r *leasev1.SessionRequest) bool { return r.GetAcquire() != nil })
	ss.tell(t, asked.GetId(), &leasev1.SessionResponse{Message: &leasev1.SessionResponse_Granted{Granted: &leasev1.AcquireResponse{
		Name: asked.GetAcquire().GetName(), Token: token, Ttl: durationpb.New(ttl), ExpiresIn: durationpb.New(expiresIn),
	}}})
}

// settled returns once the client has handled all that it was told: it gives back at once what it did not ask for.
func (ss *scriptedStream) settled(t *testing.T) {
	t.Helper()
	const unknown = "nobody-asked"
	ss.tell(t, 1<<40, &leasev1.SessionResponse{Message: &leasev1.SessionResponse_Granted{Granted: &leasev1.AcquireResponse{Name: unknown, Token: 1}}})
	ss.until(t, "a release of what it did not ask for", func(r *leasev1.SessionRequest) bool { return r.GetRelease().GetName() == unknown })
}

// acquired is what an acquire of a test returned.
type acquired struct {
	lease *lease.Lease
	err   error
}

func acquireLater(t *testing.T, s *lease.Session, name string) <-chan acquired {
	t.Helper()
	done := make(chan acquired, 1)
	ctx := within(t, patience)
	go func() {
		l, err := s.Acquire(ctx, name)
		done <- acquired{l, err}
	}()
	return done
}

// What the service says of a lease right after it granted it counts, although whoever asked does not have it yet.
func TestALeaseThatIsLostBeforeItIsHandedOver(t *testing.T) {
	service, client := script(t, time.Minute)
	session, err := client.NewSession(within(t, patience))
	require.NoError(t, err)
	stream := service.stream(t)
	for token, name := range []string{"kept", "lost"} {
		asked := acquireLater(t, session, name)
		stream.grant(t, int64(token+1), time.Minute, 0) // so it has to be confirmed
		confirm := <-service.confirms
		stream.tell(t, 0, &leasev1.SessionResponse{Message: &leasev1.SessionResponse_RevokeRequested{RevokeRequested: &leasev1.SessionRevokeRequested{
			Name: name, Token: confirm.GetToken(), Revocation: &leasev1.Revocation{Reason: "maintenance"},
		}}})
		if name == "lost" {
			stream.tell(t, 0, &leasev1.SessionResponse{Message: &leasev1.SessionResponse_Lost{Lost: &leasev1.SessionLost{Name: name, Token: confirm.GetToken()}}})
		}
		stream.settled(t)
		close(confirm.goOn)
		got := <-asked
		if name == "lost" {
			require.ErrorIs(t, got.err, lease.ErrNotHeld)
			continue
		}
		require.NoError(t, got.err)
		require.NotNil(t, got.lease.Revocation())
		require.Equal(t, "maintenance", got.lease.Revocation().Reason)
	}
	require.Equal(t, 1, session.Leases())
}

// A lease whose stream breaks before it is handed over is taken along like any other.
func TestALeaseWhoseStreamBreaksBeforeItIsHandedOver(t *testing.T) {
	service, client := script(t, time.Minute)
	session, err := client.NewSession(within(t, patience))
	require.NoError(t, err)
	stream := service.stream(t)
	asked := acquireLater(t, session, "n")
	stream.grant(t, 7, time.Minute, 0)
	confirm := <-service.confirms
	close(stream.end)
	stream = service.stream(t)
	require.Len(t, stream.open.GetAttach(), 1)
	require.Equal(t, "n", stream.open.GetAttach()[0].GetName())
	close(confirm.goOn)
	got := <-asked
	require.NoError(t, got.err)
	require.Positive(t, got.lease.Remaining())
	require.Equal(t, 1, session.Leases())
}

// The service hears of it when a client gives a lease up that could not be renewed in time.
func TestWhatExpiresIsReleased(t *testing.T) {
	const ttl = 300 * time.Millisecond
	service, client := script(t, ttl)
	session, err := client.NewSession(within(t, patience))
	require.NoError(t, err)
	stream := service.stream(t)
	asked := acquireLater(t, session, "n")
	stream.grant(t, 7, ttl, ttl)
	held := (<-asked).lease
	released := stream.until(t, "a release", func(r *leasev1.SessionRequest) bool { return r.GetRelease() != nil }).GetRelease()
	require.Equal(t, "n", released.GetName())
	require.Equal(t, int64(7), released.GetToken())
	require.ErrorIs(t, held.Err(), lease.ErrExpired)
}
