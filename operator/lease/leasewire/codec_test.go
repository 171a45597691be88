package leasewire

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// samples are requests of every shape that matters to a codec: nested, repeated, maps, one-ofs, well-known types.
func samples() []*leasev1.SessionRequest {
	acquire := &leasev1.SessionRequest{Id: 7, Message: &leasev1.SessionRequest_Acquire{Acquire: &leasev1.AcquireRequest{
		Name: "a/b", Mode: leasev1.LeaseMode_LEASE_MODE_PERMITS, Permits: 2, PermitsTotal: -1, Holder: "hölder", Ttl: durationpb.New(-time.Minute),
		Metadata: map[string]string{"k": "v", "": ""}, Value: []byte{0, 255}, RequestId: "id", Wait: &leasev1.Wait{},
	}}}
	return []*leasev1.SessionRequest{
		{},
		acquire,
		{Id: 1 << 63, Message: &leasev1.SessionRequest_Heartbeat{Heartbeat: &leasev1.SessionHeartbeat{}}},
		{Message: &leasev1.SessionRequest_Release{Release: &leasev1.ReleaseRequest{Name: "a", Token: -1}}},
		{Message: &leasev1.SessionRequest_GetMany{GetMany: &leasev1.SessionGetMany{Names: []string{"a", "", "b"}}}},
		{Message: &leasev1.SessionRequest_Batch{Batch: &leasev1.SessionRequestBatch{Requests: []*leasev1.SessionRequest{acquire, {}, acquire}}}},
	}
}

// Either codec reads what the other has written, small and, from a pool of buffers, large.
func TestTheCodecsUnderstandEachOther(t *testing.T) {
	large := &leasev1.SessionResponse{Message: &leasev1.SessionResponse_Got{Got: &leasev1.GetResponse{Lease: &leasev1.Lease{
		Name: "a", GraceUntil: timestamppb.Now(), Holds: []*leasev1.Hold{{Token: 1, Value: make([]byte, 64<<10), Revocation: &leasev1.Revocation{Force: true}}},
	}}}}
	ack := &leasev1.SessionResponse{Id: 1, Message: &leasev1.SessionResponse_HeartbeatAck{HeartbeatAck: &leasev1.SessionHeartbeatAck{
		ExpiresIn: durationpb.New(-time.Second), Renewed: true, More: true,
		Others: []*leasev1.SessionHeartbeatOther{{Name: "a/b", Token: 1 << 62, ExpiresInMillis: 1}, {}},
	}}}
	messages := []proto.Message{large, ack, &grpc_health_v1.HealthCheckRequest{Service: "not of the lease API"}}
	for _, r := range samples() {
		messages = append(messages, r)
	}
	standard := encoding.GetCodecV2(Codec().Name())
	for _, m := range messages {
		for _, pair := range [][2]encoding.CodecV2{{Codec(), standard}, {standard, Codec()}, {Codec(), Codec()}} {
			data, err := pair[0].Marshal(m)
			require.NoError(t, err)
			got := m.ProtoReflect().New().Interface()
			require.NoError(t, pair[1].Unmarshal(data, got))
			require.True(t, proto.Equal(m, got), "%v became %v", m, got)
			data.Free()
		}
	}
}

// Whatever bytes come, the codec takes what gRPC's own would take, in the same meaning.
func FuzzUnmarshal(f *testing.F) {
	for _, r := range samples() {
		data, err := proto.Marshal(r)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var want, got leasev1.SessionRequest
		err := Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, &got)
		if proto.Unmarshal(data, &want) != nil {
			return // it is stricter: it looks at UTF-8
		}
		require.NoError(t, err)
		require.True(t, proto.Equal(&want, &got), "%v became %v", &want, &got)
	})
}
