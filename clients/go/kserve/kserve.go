package kserve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

//go:generate python3 -m grpc_tools.protoc -I. --go_out=. --go_opt=paths=source_relative grpc_service.proto

// window is the HTTP/2 flow-control window in bytes: answers must never wait for it.
const window = 16 << 20

// reconnect is how often a lost server is tried again; gRPC alone would wait up to two minutes.
var reconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
	MinConnectTimeout: time.Second,
}

// Dial connects to the gRPC service at host:port without TLS, directly even if the environment names a proxy.
func Dial(url string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient(url, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(reconnect),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
		grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window), grpc.WithNoProxy())
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", url, err)
	}
	return conn, nil
}

// Infer sends one request and waits for its answer. The error has a gRPC status.
func Infer(ctx context.Context, conn *grpc.ClientConn, request *ModelInferRequest) (*ModelInferResponse, error) {
	response := &ModelInferResponse{}
	return response, conn.Invoke(ctx, "/inference.GRPCInferenceService/ModelInfer", request, response)
}

// Metadata asks a server for the inputs and outputs of a model. The error has a gRPC status.
func Metadata(ctx context.Context, conn *grpc.ClientConn, model string) (*ModelMetadataResponse, error) {
	response := &ModelMetadataResponse{}
	return response, conn.Invoke(ctx, "/inference.GRPCInferenceService/ModelMetadata", &ModelMetadataRequest{Name: model}, response)
}

// Stream is a stream of inference requests and their answers. One goroutine may send while another one receives.
type Stream struct{ rpc grpc.ClientStream }

// OpenStream opens a stream, which ends with its context at the latest.
func OpenStream(ctx context.Context, conn *grpc.ClientConn) (*Stream, error) {
	desc := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	rpc, err := conn.NewStream(ctx, desc, "/inference.GRPCInferenceService/ModelStreamInfer")
	if err != nil {
		return nil, fmt.Errorf("open a stream to %s: %w", conn.Target(), err)
	}
	return &Stream{rpc}, nil
}

// Send sends a request. If the stream is broken, Receive says why.
func (s *Stream) Send(request *ModelInferRequest) error {
	if err := s.rpc.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("send: %w", err)
	}
	return nil
}

// Receive waits for the next answer, which replaces what response held. The error is io.EOF when the server has ended the
// stream in order.
func (s *Stream) Receive(response *ModelStreamInferResponse) error {
	return s.rpc.RecvMsg(response)
}

// Close tells the server that there are no more requests. It ends the stream after the last answer.
func (s *Stream) Close() error {
	return s.rpc.CloseSend()
}

// SequenceID names a sequence by a number, or by Text where that is not empty.
type SequenceID struct {
	Number uint64
	Text   string
}

// Tensor is one input: its KServe datatype ("FP32"), its shape with the batch axis, and its bytes in row-major
// little-endian order, which the requests of a sequence may change between two steps.
type Tensor struct {
	Name     string
	Datatype string
	Shape    []int64
	Data     []byte
}

// NewRequest makes the request that is sent at every step of a sequence; call SetStep before. It borrows the inputs' data.
// The ID comes back in the answer. Without outputs the server sends all of them.
func NewRequest(model, id string, inputs []Tensor, outputs ...string) *ModelInferRequest {
	r := &ModelInferRequest{ModelName: model, Id: id}
	for _, in := range inputs {
		r.Inputs = append(r.Inputs, &ModelInferRequest_InferInputTensor{Name: in.Name, Datatype: in.Datatype, Shape: in.Shape})
		r.RawInputContents = append(r.RawInputContents, in.Data)
	}
	for _, name := range outputs {
		r.Outputs = append(r.Outputs, &ModelInferRequest_InferRequestedOutputTensor{Name: name})
	}
	return r
}

// SetStep says which sequence the request belongs to and whether it starts or ends it.
func (x *ModelInferRequest) SetStep(id SequenceID, start, end bool) {
	named := &InferParameter{ParameterChoice: &InferParameter_Int64Param{Int64Param: int64(id.Number)}}
	if id.Text != "" {
		named.ParameterChoice = &InferParameter_StringParam{StringParam: id.Text}
	}
	x.Parameters = map[string]*InferParameter{
		"sequence_id":    named,
		"sequence_start": {ParameterChoice: &InferParameter_BoolParam{BoolParam: start}},
		"sequence_end":   {ParameterChoice: &InferParameter_BoolParam{BoolParam: end}},
	}
}

// Output returns the bytes of an output.
func (x *ModelStreamInferResponse) Output(name string) (data []byte, found bool) {
	contents := x.GetInferResponse().GetRawOutputContents()
	for i, output := range x.GetInferResponse().GetOutputs() {
		if output.GetName() == name && i < len(contents) {
			return contents[i], true
		}
	}
	return nil, false
}
