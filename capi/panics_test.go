package main

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend"
	"tritonstateful/internal/faketriton"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// mistakes are bugs that must not end the server.
var mistakes = map[string]func(){
	"panic":           func() { panic("because") },
	"nil dereference": func() { **new(*int) = 1 },
	"index":           func() { _ = i32(1)[len(i32(1, 2))] },
	"bad address":     func() { address := uintptr(0xdead0000); **(**int)(unsafe.Pointer(&address)) = 1 },
}

func TestMistakeIsAnswered(t *testing.T) {
	for name, mistake := range mistakes {
		t.Run(name, func(t *testing.T) {
			in := newEcho()
			good := in.execute
			bad := true
			in.execute = func(b backend.Batch) {
				if bad {
					mistake()
				}
				good(b)
			}
			s := serve(t, in)
			rs := s.execute(t, echoCall(1, 1, 2), echoCall(2, 3, 4))
			refused(t, rs[0], status.Internal, "panic in the stateful backend")
			refused(t, rs[1], status.Internal, "panic in the stateful backend")
			line, _ := faketriton.LastLog()
			require.Contains(t, line, "goroutine", "the log has the stack")

			bad = false
			rs = s.execute(t, echoCall(1, 5, 6))
			answered(t, rs[0], y(5, 6), z(7))
		})
	}
}

func TestMistakeAfterSomeAnswers(t *testing.T) {
	in := newEcho()
	in.outputs = in.outputs[:1]
	output := []backend.Output{{Tensor: i32(1, 2), Layout: statebuffer.Layout{Pieces: 1, PieceBytes: 8}, Lanes: 1, Shape: pair}}
	in.execute = func(b backend.Batch) {
		b.Answer(0, output, 0, 1)
		b.Send()
		b.Answer(1, output, 0, 1)
		panic("because")
	}
	s := serve(t, in)
	rs := s.execute(t, echoCall(1, 0, 0), echoCall(2, 0, 0), echoCall(3, 0, 0))
	answered(t, rs[0], y(1, 2))
	answered(t, rs[1], y(1, 2))
	refused(t, rs[2], status.Internal, "because")
}

func TestMistakeAfterFinish(t *testing.T) {
	in := newEcho()
	good := in.execute
	in.execute = func(b backend.Batch) { good(b); panic("because") }
	s := serve(t, in)
	rs := s.execute(t, echoCall(1, 1, 2))
	answered(t, rs[0], y(1, 2), z(7))
}

func TestUnansweredRequest(t *testing.T) {
	in := newEcho()
	in.execute = func(backend.Batch) {}
	s := serve(t, in)
	rs := s.execute(t, echoCall(1, 1, 2))
	refused(t, rs[0], status.Internal, "left this request without an answer")
}

// TestAnswerThatCannotBeCopied answers with outputs that C would read past.
func TestAnswerThatCannotBeCopied(t *testing.T) {
	good := backend.Output{Tensor: make([]byte, 48), Layout: statebuffer.Layout{Pieces: 2, PieceBytes: 8}, Lanes: 3, Shape: tensor.Shape{2, 1, 2}}
	in := newEcho()
	in.outputs = in.outputs[:1]
	var outputs []backend.Output
	var lane, lanes int
	in.execute = func(b backend.Batch) { b.Answer(0, outputs, lane, lanes) }
	s := serve(t, in)
	execute := func() *faketriton.Request {
		rs := s.execute(t, echoCall(1, 0, 0))
		return rs[0]
	}
	bad := func(want string, change func(*backend.Output)) {
		o := good
		outputs, lane, lanes = []backend.Output{o}, 0, 1
		change(&outputs[0])
		refused(t, execute(), status.Internal, want)
	}
	bad("has 0 outputs: want 1", func(*backend.Output) { outputs = nil })
	bad("has 3 lanes", func(*backend.Output) { lane = 3 })
	bad("has 3 lanes", func(*backend.Output) { lane = -1 })
	bad("has 3 lanes", func(*backend.Output) { lanes = 0 })
	bad("has 3 lanes", func(*backend.Output) { lane, lanes = 1, 1<<62 })
	bad("48 bytes", func(o *backend.Output) { o.Lanes = 4 })
	bad("48 bytes", func(o *backend.Output) { o.Layout.Pieces = 3 })
	bad("48 bytes", func(o *backend.Output) { o.Layout = statebuffer.Layout{Pieces: 1 << 40, PieceBytes: 1 << 40} })
	bad("none negative", func(o *backend.Output) { o.Layout.PieceBytes = -8 })
	bad("rank of at most 32", func(o *backend.Output) { o.Shape = make(tensor.Shape, 33) })
	bad("want 8", func(o *backend.Output) { o.Shape = pair })
	bad("not fixed", func(o *backend.Output) { o.Shape = tensor.Shape{2, -1, 2} })
	bad("cannot hold 2 lanes", func(*backend.Output) { lanes = 2 })
	bad("cannot hold 1 lanes", func(o *backend.Output) { o.Shape, o.Batched = nil, true })

	outputs, lane, lanes = []backend.Output{good}, 2, 1
	_, err := execute().Answer()
	require.NoError(t, err)
}

// TestStringsThatCannotBeCopied does so with the offsets of strings.
func TestStringsThatCannotBeCopied(t *testing.T) {
	in := newEcho()
	in.outputs = []onnx.IOTensor{{Name: "Y", DType: tensor.Bytes}}
	var offsets []int64
	in.execute = func(b backend.Batch) {
		b.Answer(0, []backend.Output{{Tensor: []byte("four"), Offsets: offsets, Lanes: 2, Shape: single, Batched: true}}, 0, 1)
	}
	s := serve(t, in)
	for _, offsets = range [][]int64{{}, {0, 4}, {0, 2, 5}, {-1, 2, 4}, {0, 3, 2}, {0, 1, 2, 3}} {
		rs := s.execute(t, echoCall(1, 0, 0))
		refused(t, rs[0], status.Internal, "a tensor of 4 bytes into 2 lanes")
	}
}
