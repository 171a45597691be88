package server

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/internal/lease/engine"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// owners stands for the owners of all holds, at other replicas.
type owners struct {
	mu sync.Mutex
	// kept has the holds that are served, with their TTLs. What is in silent gets no answer before the call ends.
	kept   map[holdKey]time.Duration
	silent map[holdKey]bool
	asked  map[holdKey]int
	// fails are answered by an error.
	fails map[holdKey]error
}

func newOwners() *owners {
	return &owners{kept: map[holdKey]time.Duration{}, silent: map[holdKey]bool{}, asked: map[holdKey]int{}, fails: map[holdKey]error{}}
}

func (o *owners) keepAll(ctx context.Context, _ caller, holds []*leasev1.KeepAliveRequest, tell func(int, *leasev1.KeepAliveResponse, error)) {
	var late []int
	for i, h := range holds {
		key := holdKey{h.GetName(), h.GetToken()}
		o.mu.Lock()
		ttl, kept := o.kept[key]
		silent, failed := o.silent[key], o.fails[key]
		o.asked[key]++
		o.mu.Unlock()
		switch {
		case silent:
			late = append(late, i)
		case failed != nil:
			tell(i, nil, failed)
		case kept:
			tell(i, &leasev1.KeepAliveResponse{Ttl: durationpb.New(ttl), ExpiresIn: durationpb.New(ttl)}, nil)
		default:
			tell(i, nil, &core.NotHeldError{Name: key.name, Token: key.token})
		}
	}
	if len(late) == 0 {
		return
	}
	<-ctx.Done()
	for _, i := range late {
		tell(i, nil, status.Error(codes.Unavailable, "nobody serves it"))
	}
}

func (o *owners) times(key holdKey) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.asked[key]
}

// bubbleClock is the clock of a bubble of synctest, which steps on as soon as everything in the bubble waits.
func bubbleClock() core.Instant { return core.Instant(time.Now().UnixNano()) }

// elsewhereSession is a session at a replica that serves nothing.
func elsewhereSession(t *testing.T, o *owners, ttl time.Duration) *sessionStream {
	t.Helper()
	server := &Server{
		opts: Options{Clock: bubbleClock}, engine: engine.New(engine.Options{Clock: bubbleClock, Registry: prometheus.NewRegistry()}),
	}
	server.elsewhere = &elsewhereHolds{server: server, holds: map[holdKey]map[*sessionStream]struct{}{}}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return &sessionStream{
		server: server, ctx: ctx, ttl: ttl, out: newOutbox(), keepAll: o.keepAll, allAnswered: make(chan struct{}, 1),
		holds: map[holdKey]*sessionHold{}, attaching: map[holdKey]uint64{},
	}
}

// answers takes what the session has to say.
func (ss *sessionStream) answers() []*leasev1.SessionResponse {
	messages, _ := ss.out.take()
	return messages
}

// Holds whose owner does not answer keep no others waiting, and are named in the answer.
func TestAHeartbeatDoesNotWaitForOwnersThatDoNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOwners()
		ss := elsewhereSession(t, o, time.Second)
		good, long, silent, gone := holdKey{"good", 1}, holdKey{"long", 2}, holdKey{"silent", 3}, holdKey{"gone", 4}
		o.kept[good], o.kept[long], o.silent[silent] = time.Second, time.Hour, true
		now := bubbleClock()
		for _, key := range []holdKey{good, long, silent, gone} {
			ss.holds[key] = &sessionHold{ttl: max(o.kept[key], time.Second), until: now.Add(500 * time.Millisecond)}
		}
		for id := range uint64(3) {
			ss.heartbeat(id + 1)
		}
		require.LessOrEqual(t, bubbleClock().Sub(now), 3*time.Second/3/beatShare)
		var acks []*leasev1.SessionHeartbeatAck
		lost := 0
		for _, m := range ss.answers() {
			if m.GetLost() != nil {
				lost++
				assert.Equal(t, "gone", m.GetLost().GetName())
				assert.Empty(t, acks, "it is told before the heartbeat is answered")
			}
			if ack := m.GetHeartbeatAck(); ack != nil {
				acks = append(acks, ack)
				require.Len(t, ack.GetOthers(), 1)
				require.Equal(t, "silent", ack.GetOthers()[0].GetName())
				require.Equal(t, int64(3), ack.GetOthers()[0].GetToken())
				require.LessOrEqual(t, ack.GetOthers()[0].GetExpiresInMillis(), int64(500))
				require.True(t, ack.GetRenewed())
				require.LessOrEqual(t, ack.GetExpiresIn().AsDuration(), 500*time.Millisecond, "who does not know of the others must not believe more")
			}
		}
		require.Equal(t, 1, lost)
		require.Len(t, acks, 3)
		assert.Equal(t, 1, o.times(silent), "it is being asked still")
		assert.Equal(t, 3, o.times(good))
	})
}

// The holds that lived for less than their TTLs after a heartbeat came are named, and only those, whatever their TTLs.
func TestStanding(t *testing.T) {
	const came, now = core.Instant(time.Hour), core.Instant(time.Hour + time.Second)
	holds := map[holdKey]*sessionHold{
		{"renewed", 1}:        {ttl: time.Minute, until: came.Add(time.Minute)},
		{"long", 2}:           {ttl: time.Hour, until: came.Add(time.Hour)},
		{"granted since", 3}:  {ttl: time.Minute, until: now.Add(time.Minute)},
		{"not renewed", 4}:    {ttl: time.Minute, until: came.Add(time.Minute - 1)},
		{"long, not so", 5}:   {ttl: time.Hour, until: came.Add(10 * time.Minute)},
		{"past its time", 6}:  {ttl: time.Minute, until: came.Add(-time.Second)},
		{"renewed, short", 7}: {ttl: time.Second, until: came.Add(time.Second)},
	}
	least, others := standing(holds, came, now)
	assert.Equal(t, -2*time.Second, least)
	millis := map[string]int64{}
	for _, o := range others {
		millis[o.GetName()] = o.GetExpiresInMillis()
	}
	assert.Equal(t, map[string]int64{"not renewed": 58_999, "long, not so": 599_000, "past its time": 0}, millis)
}

// However many holds are not renewed, each answer is small enough to be sent, and the last one is the only one that renews the others.
func TestManyOthersComeInSeveralAnswers(t *testing.T) {
	ss := elsewhereSession(t, newOwners(), time.Minute)
	const many = 2*beatOthers + 1
	for i := range many {
		ss.holds[holdKey{fmt.Sprint("n", i), int64(i)}] = &sessionHold{ttl: time.Minute}
	}
	ss.acknowledge(7, bubbleClock(), 20*time.Second)
	named := map[string]bool{}
	answers := ss.answers()
	require.Len(t, answers, 3)
	for i, m := range answers {
		require.Equal(t, uint64(7), m.GetId())
		require.Equal(t, i < 2, m.GetHeartbeatAck().GetMore())
		require.LessOrEqual(t, len(m.GetHeartbeatAck().GetOthers()), beatOthers)
		for _, o := range m.GetHeartbeatAck().GetOthers() {
			named[o.GetName()] = true
		}
	}
	require.Len(t, named, many)
}
