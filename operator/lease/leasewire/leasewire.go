// Package leasewire makes gRPC carry the lease API for less processor time. What goes over the wire stays the same, and either side may
// use it without the other.
//
// Messages are encoded and decoded by generated code instead of reflection, in about a third of the time. That code does not look
// whether strings are valid UTF-8; the service checks what it is sent by itself.
//
// Windows of flow control have fixed sizes. gRPC otherwise measures the network to find a good one, with a ping and an answer to it
// for nearly each message, which costs small calls as much again as they do themselves.
package leasewire

import "google.golang.org/grpc"

const (
	// The client's windows are for watches and lists, the server's for sessions, whose messages have 1 MiB at most.
	clientStream, clientConn = 1 << 20, 4 << 20
	serverStream, serverConn = 1 << 19, 2 << 20
)

// ServerOptions are the options of a server.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(Codec()), grpc.StaticStreamWindowSize(serverStream), grpc.StaticConnWindowSize(serverConn),
	}
}

// DialOptions are the options of a client's connection.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(Codec())),
		grpc.WithStaticStreamWindowSize(clientStream), grpc.WithStaticConnWindowSize(clientConn),
	}
}
