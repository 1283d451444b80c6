package kserve

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
)

// Full method names of the service.
const (
	MethodStreamInfer = "/inference.GRPCInferenceService/ModelStreamInfer"
	MethodStatistics  = "/inference.GRPCInferenceService/ModelStatistics"
)

// StreamInfer opens a stream of inference requests: SendMsg takes a *Request, RecvMsg a *Response.
func StreamInfer(ctx context.Context, conn *grpc.ClientConn) (grpc.ClientStream, error) {
	desc := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	return conn.NewStream(ctx, desc, MethodStreamInfer, grpc.ForceCodecV2(Codec{}))
}

// ReadStatistics asks the server for a model's counters.
func ReadStatistics(ctx context.Context, conn *grpc.ClientConn, model string) (Statistics, error) {
	var statistics Statistics
	err := conn.Invoke(ctx, MethodStatistics, StatisticsRequest{Model: model}, &statistics, grpc.ForceCodecV2(Codec{}))
	if err != nil {
		return Statistics{}, fmt.Errorf("statistics of model %q: %w", model, err)
	}
	return statistics, nil
}

// marshaler is a message that is sent; its bytes are lent to gRPC.
type marshaler interface{ Wire() []byte }

// unmarshaler is a message that is received; it owns the memory that it is parsed from, because gRPC takes its own
// buffers back at once.
type unmarshaler interface {
	Buffer(n int) []byte
	Parse(message []byte) error
}

// Codec hands this package's messages to gRPC without copying them on the way out, and with one copy, into memory that
// is reused, on the way in.
type Codec struct{}

// Name says that the bytes are ordinary protobuf.
func (Codec) Name() string { return "proto" }

// Marshal lends the encoded message to gRPC.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	message, ok := v.(marshaler)
	if !ok {
		return nil, fmt.Errorf("kserve: cannot send a %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(message.Wire())}, nil
}

// Unmarshal copies the bytes into the message's own buffer and parses them there.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	message, ok := v.(unmarshaler)
	if !ok {
		return fmt.Errorf("kserve: cannot receive a %T", v)
	}
	buffer := message.Buffer(data.Len())
	data.CopyTo(buffer)
	if err := message.Parse(buffer); err != nil {
		return fmt.Errorf("kserve: parse a %T: %w", v, err)
	}
	return nil
}
