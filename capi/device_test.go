package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend"
	"tritonstateful/internal/fakehost"
)

// gpuInstance is an instance that takes inputs from the memory of a GPU.
type gpuInstance struct{ *fakeInstance }

func (gpuInstance) TakesDevice() bool { return true }

// TestInputOnDevice: an instance on a GPU gets the address and never the bytes.
// Several pieces, of which one is on a GPU, nobody joins.
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
	whole, host, pieces := echoCall(1, 1, 2), echoCall(2, 3, 4), fakehost.Call{Inputs: []fakehost.Input{x([]byte("1234"), []byte("5678"))}}
	whole.Inputs[0].Memory, pieces.Inputs[0].Memory = fakehost.GPU, fakehost.GPU
	require.NoError(t, s.instance.Execute(requests(t, whole, host, pieces)...))
	require.Len(t, got, 3)
	require.NoError(t, got[0].Err)
	require.NotZero(t, got[0].Inputs[0].Device)
	require.Equal(t, int64(8), got[0].Inputs[0].Size)
	require.Nil(t, got[0].Inputs[0].Data)
	require.Zero(t, got[1].Inputs[0].Device)
	require.Len(t, got[1].Inputs[0].Data, 8)
	require.ErrorContains(t, got[2].Err, `input "X": its data is in GPU memory, or in several pieces of which one is`)
}
