package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"tritonstateful/internal/bench/kserve"
)

// fakeServer plays Triton with an accumulate model of rows of columns FP32 values. It reads requests with a decoder of
// its own, so that a mistake in ours cannot hide, and checks the order of each sequence's steps as Triton does.
type fakeServer struct {
	url     string
	server  *grpc.Server
	columns int
	spoil   func(step int, output []float32) // changes an answer before it is sent; nil: does not
	refuses float32                          // a value that is an error and changes nothing; 0: none

	mu       sync.Mutex
	open     map[string]*fakeSequence
	started  int
	refused  map[string]int // requests of open sequences
	requests uint64
}

type fakeSequence struct {
	sums []float32
	step int
}

// bytesMessage is a message that the fake server handles itself.
type bytesMessage []byte

func (m bytesMessage) Wire() []byte { return m }

func (m *bytesMessage) Buffer(n int) []byte {
	*m = make([]byte, n)
	return *m
}

func (m *bytesMessage) Parse([]byte) error { return nil }

func startFakeServer(t *testing.T, columns int) *fakeServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeServer{url: listener.Addr().String(), columns: columns, open: map[string]*fakeSequence{}, refused: map[string]int{}}
	f.server = grpc.NewServer(grpc.ForceServerCodecV2(kserve.Codec{}), grpc.UnknownServiceHandler(f.handle))
	go func() { _ = f.server.Serve(listener) }()
	t.Cleanup(f.server.Stop)
	return f
}

func (f *fakeServer) handle(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	for {
		var request bytesMessage
		if err := stream.RecvMsg(&request); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if method == kserve.MethodStatistics {
			return stream.SendMsg(f.statistics())
		}
		if err := stream.SendMsg(f.infer(request)); err != nil {
			return err
		}
	}
}

// statistics reports batches of two.
func (f *fakeServer) statistics() bytesMessage {
	f.mu.Lock()
	defer f.mu.Unlock()
	model := protowire.AppendVarint(protowire.AppendTag(nil, 4, protowire.VarintType), f.requests)
	model = protowire.AppendVarint(protowire.AppendTag(model, 5, protowire.VarintType), f.requests/2)
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), model)
}

// fakeRequest is what the fake server understands of a request.
type fakeRequest struct {
	id, sequence string
	start, end   bool
	input        []float32
}

func (f *fakeServer) infer(message []byte) bytesMessage {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	request := decodeRequest(message)
	if f.refuses != 0 && request.input[0] == f.refuses {
		if f.open[request.sequence] != nil {
			f.refused[request.sequence]++
		}
		if request.end {
			delete(f.open, request.sequence)
		}
		return encodeError(request.id, "refused")
	}
	if request.start {
		f.started++
		f.open[request.sequence] = &fakeSequence{sums: make([]float32, f.columns)}
	}
	sequence, known := f.open[request.sequence]
	if !known {
		return encodeError(request.id, fmt.Sprintf("no sequence %s", request.sequence))
	}
	if request.end {
		delete(f.open, request.sequence)
	}
	for i, value := range request.input {
		sequence.sums[i%f.columns] += value
	}
	output := make([]float32, len(request.input))
	for i, value := range request.input {
		output[i] = value + sequence.sums[i%f.columns]
	}
	if f.spoil != nil {
		f.spoil(sequence.step, output)
	}
	sequence.step++
	return encodeAnswer(request.id, output)
}

// decodeRequest reads a well-formed request and panics over any other.
func decodeRequest(message []byte) (r fakeRequest) {
	walk(message, func(number protowire.Number, _ uint64, content []byte) {
		switch number {
		case 3:
			r.id = string(content)
		case 4:
			r.parameter(content)
		case 7:
			for ; len(content) > 0; content = content[4:] {
				r.input = append(r.input, math.Float32frombits(binary.LittleEndian.Uint32(content)))
			}
		}
	})
	return r
}

func (r *fakeRequest) parameter(entry []byte) {
	var key, text string
	var value uint64
	walk(entry, func(number protowire.Number, _ uint64, content []byte) {
		if number == 1 {
			key = string(content)
			return
		}
		walk(content, func(_ protowire.Number, v uint64, content []byte) { value, text = v, string(content) })
	})
	switch key {
	case "sequence_start":
		r.start = value == 1
	case "sequence_end":
		r.end = value == 1
	case "sequence_id":
		r.sequence = fmt.Sprint(text, value)
	}
}

func walk(message []byte, visit func(number protowire.Number, value uint64, content []byte)) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		message = message[n:]
		var value uint64
		var content []byte
		if kind == protowire.VarintType {
			value, n = protowire.ConsumeVarint(message)
		} else {
			content, n = protowire.ConsumeBytes(message)
		}
		visit(number, value, content)
		message = message[n:]
	}
}

func encodeAnswer(id string, output []float32) bytesMessage {
	var data []byte
	for _, value := range output {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(value))
	}
	name := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "Output")
	answer := protowire.AppendString(protowire.AppendTag(nil, 3, protowire.BytesType), id)
	answer = protowire.AppendBytes(protowire.AppendTag(answer, 5, protowire.BytesType), name)
	answer = protowire.AppendBytes(protowire.AppendTag(answer, 6, protowire.BytesType), data)
	return protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), answer)
}

func encodeError(id, text string) bytesMessage {
	answer := protowire.AppendString(protowire.AppendTag(nil, 3, protowire.BytesType), id)
	message := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), text)
	return protowire.AppendBytes(protowire.AppendTag(message, 2, protowire.BytesType), answer)
}
