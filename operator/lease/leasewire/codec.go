package leasewire

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// message is what the generated code of a message offers.
type message interface {
	SizeVT() int
	MarshalToSizedBufferVT(to []byte) (int, error)
	UnmarshalVT(from []byte) error
}

type codec struct{ others encoding.CodecV2 }

// Codec returns the codec, for grpc.ForceServerCodecV2 and grpc.ForceCodecV2. Messages of other services it leaves to gRPC's own.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2(proto.Name)} }

// Name implements encoding.CodecV2.
func (c codec) Name() string { return proto.Name }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(message)
	if !ok {
		return c.others.Marshal(v)
	}
	size := m.SizeVT()
	if mem.IsBelowBufferPoolingThreshold(size) {
		data := make([]byte, size)
		_, err := m.MarshalToSizedBufferVT(data)
		return mem.BufferSlice{mem.SliceBuffer(data)}, err
	}
	pool := mem.DefaultBufferPool()
	data := pool.Get(size)
	if _, err := m.MarshalToSizedBufferVT(*data); err != nil {
		pool.Put(data)
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(data, pool)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(message)
	if !ok {
		return c.others.Unmarshal(data, v)
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	return m.UnmarshalVT(whole.ReadOnlyData())
}
