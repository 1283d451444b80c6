package main

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"tritonstateful/clients/go/kserve"
)

// fakeServer stands in for Triton with an accumulate model of rows of columns FP32 values. It checks the order of each
// sequence's steps as Triton does.
type fakeServer struct {
	url     string
	server  *grpc.Server
	spoil   func(step int, output []float32) // changes an answer before it is sent; nil: does not
	refuses float32                          // a value that is an error and changes nothing; 0: none
	delay   time.Duration                    // of every answer

	mu       sync.Mutex
	open     map[string]*fakeSequence
	started  int
	refused  map[string]int // requests of open sequences
	requests int
	steps    map[string]int // of every sequence that began
}

type fakeSequence struct {
	sums [columns]float32
	step int
}

const columns = 5

func startFakeServer(t *testing.T) *fakeServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeServer{url: listener.Addr().String(), open: map[string]*fakeSequence{}, refused: map[string]int{}, steps: map[string]int{}}
	f.server = grpc.NewServer(grpc.UnknownServiceHandler(f.handle))
	go func() { _ = f.server.Serve(listener) }()
	t.Cleanup(f.server.Stop)
	return f
}

func (f *fakeServer) handle(_ any, stream grpc.ServerStream) error {
	for {
		var request kserve.ModelInferRequest
		if err := stream.RecvMsg(&request); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		time.Sleep(f.delay)
		if err := stream.SendMsg(f.infer(&request)); err != nil {
			return err
		}
	}
}

func (f *fakeServer) infer(request *kserve.ModelInferRequest) *kserve.ModelStreamInferResponse {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	id := request.GetParameters()["sequence_id"].String()
	end := request.GetParameters()["sequence_end"].GetBoolParam()
	answer := &kserve.ModelStreamInferResponse{InferResponse: &kserve.ModelInferResponse{Id: request.GetId()}}
	var input []float32
	for data := request.GetRawInputContents()[0]; len(data) > 0; data = data[4:] {
		input = append(input, math.Float32frombits(binary.LittleEndian.Uint32(data)))
	}
	if end {
		defer delete(f.open, id)
	}
	if f.refuses != 0 && input[0] == f.refuses {
		if f.open[id] != nil {
			f.refused[id]++
		}
		answer.ErrorMessage = "refused"
		return answer
	}
	if request.GetParameters()["sequence_start"].GetBoolParam() {
		f.started++
		f.open[id] = &fakeSequence{}
	}
	sequence, known := f.open[id]
	if !known {
		answer.ErrorMessage = "no sequence " + id
		return answer
	}
	f.steps[id]++
	for i, value := range input {
		sequence.sums[i%columns] += value
	}
	for i := range input {
		input[i] += sequence.sums[i%columns]
	}
	if f.spoil != nil {
		f.spoil(sequence.step, input)
	}
	sequence.step++
	var data []byte
	for _, value := range input {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(value))
	}
	answer.InferResponse.Outputs = []*kserve.ModelInferResponse_InferOutputTensor{{Name: "Output"}}
	answer.InferResponse.RawOutputContents = [][]byte{data}
	return answer
}
