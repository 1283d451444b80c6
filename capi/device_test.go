package main

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend"
	"tritonstateful/internal/faketriton"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// gpuInstance is an instance that takes inputs from the memory of a GPU.
type gpuInstance struct{ *fakeInstance }

func (gpuInstance) TakesDevice() bool { return true }

// TestInputOnDevice: an instance on a GPU gets the address and never the bytes.
// Several buffers of which one is on a GPU are refused.
func TestInputOnDevice(t *testing.T) {
	echo := newEcho()
	var got []backend.Request
	echo.execute = func(b backend.Batch) {
		for _, r := range b.Requests() {
			r.Inputs = append([]backend.Input(nil), r.Inputs...)
			got = append(got, r)
		}
	}
	s := serve(t, gpuInstance{echo})
	whole, host, pieces := echoCall(1, 1, 2), echoCall(2, 3, 4), faketriton.Call{Inputs: []faketriton.Input{x([]byte("1234"), []byte("5678"))}}
	whole.Inputs[0].Memory, pieces.Inputs[0].Memory = faketriton.GPU, faketriton.GPU
	s.execute(t, whole, host, pieces)
	require.Len(t, got, 3)
	require.NoError(t, got[0].Err)
	require.NotZero(t, got[0].Inputs[0].Device)
	require.Equal(t, int64(8), got[0].Inputs[0].Size)
	require.Nil(t, got[0].Inputs[0].Data)
	require.Zero(t, got[1].Inputs[0].Device)
	require.Len(t, got[1].Inputs[0].Data, 8)
	require.ErrorContains(t, got[2].Err, `input "X": its data is in GPU memory`)
}

// TestOutputOnDevice: an instance on a GPU asks first, and fills what is there
// itself; what the host can address is filled as ever.
func TestOutputOnDevice(t *testing.T) {
	echo := newEcho()
	var given [][]uint64
	var asked []int
	echo.execute = func(b backend.Batch) { // on a thread of the fake server's, where require must not be called
		outputs := echoOutputs(3, 10, 20, 30)
		for req := range b.Requests() {
			places := b.Reserve(req, outputs, req, 1)
			given = append(given, append([]uint64(nil), places...))
			if places[0] != 0 { // the fake server's GPU memory is CPU memory
				to := unsafe.Slice((*byte)(addressOf(places[0])), 8)
				copy(to, "device!!")
			}
			asked = append(asked, faketriton.CallsOf("TRITONBACKEND_OutputBuffer"))
			b.Answer(req, outputs, req, 1)
		}
		b.Send()
	}
	echo.outputs = echo.outputs[:1]
	s := serve(t, gpuInstance{echo})
	calls := []faketriton.Call{echoCall(1, 1, 2), echoCall(2, 3, 4), echoCall(3, 5, 6)}
	calls[0].OutputMemory, calls[1].OutputMemory = faketriton.GPU, faketriton.Pinned
	calls[2].OutputMemory = faketriton.GPU
	rs := s.execute(t, calls...)
	require.NotZero(t, given[0][0])
	require.Zero(t, given[1][0])
	for req, want := range []string{"device!!", string(i32(20, 21)), "device!!"} {
		outputs, err := rs[req].Answer()
		require.NoError(t, err)
		require.Equal(t, want, string(outputs[0].Data))
	}
	require.Equal(t, []int{1, 2, 3}, asked, "before there are answers")
	require.Equal(t, 3, faketriton.CallsOf("TRITONBACKEND_OutputBuffer"), "each was asked for once")
}

// TestReservedAndFailed: a run that fails after the places were asked for, an
// answer of another size, and a server that has no memory.
func TestReservedAndFailed(t *testing.T) {
	echo := newEcho()
	echo.outputs = echo.outputs[:1]
	two := echoOutputs(2, 10, 20)
	larger := []backend.Output{{Tensor: i32(1, 2, 3, 4), Layout: statebuffer.Layout{Pieces: 1, PieceBytes: 16}, Lanes: 1, Shape: tensor.Shape{1, 4}, Batched: true}}
	var none [][]uint64
	echo.execute = func(b backend.Batch) {
		b.Reserve(0, two, 0, 1)
		b.Fail(0, status.Errorf(status.Internal, "the run failed"))
		none = append(none, b.Reserve(0, two, 0, 1)) // it is answered
		b.Reserve(1, two, 1, 1)
		b.Answer(1, larger, 0, 1)
		none = append(none, b.Reserve(2, two, 2, 1)) // there is no such lane
		faketriton.FailAt(2)                         // there is no buffer
		none = append(none, b.Reserve(3, two, 0, 1))
		faketriton.FailAt(0)
		b.Answer(3, two, 0, 1)
		b.Send()
	}
	s := serve(t, gpuInstance{echo})
	rs := s.execute(t, echoCall(1, 1, 2), echoCall(2, 1, 2), echoCall(3, 1, 2), echoCall(4, 1, 2))
	require.Equal(t, [][]uint64{nil, nil, nil}, none)
	refused(t, rs[0], status.Internal, "the run failed")
	refused(t, rs[1], status.Internal, `output "Y" does not have the size`)
	refused(t, rs[2], status.Internal, "want lanes 2 to 2")
	refused(t, rs[3], status.Unavailable, "injected failure")
}

// echoOutputs is one output with that many lanes of two numbers.
func echoOutputs(lanes int, values ...int32) []backend.Output {
	var numbers []int32
	for _, v := range values {
		numbers = append(numbers, v, v+1)
	}
	return []backend.Output{{Tensor: i32(numbers...), Layout: statebuffer.Layout{Pieces: 1, PieceBytes: 8}, Lanes: lanes, Shape: tensor.Shape{1, 2}, Batched: true}}
}

// addressOf makes a pointer of an address of C.
func addressOf(address uint64) unsafe.Pointer {
	a := uintptr(address)
	return *(*unsafe.Pointer)(unsafe.Pointer(&a))
}
