package ortrunner

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/cuda"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/ortrunner/onnxtest"
	"tritonstateful/statebuffer"
)

// waitsOf opens a model on a fake GPU, and returns how often the host has waited for it
// since it was asked last, besides the waits of the simulation.
func waitsOf(t *testing.T, model onnxtest.Model) (r *gpuRunner, waits func() uint64) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "waits")
	require.NoError(t, os.WriteFile(path, make([]byte, 8), 0o600))
	rt := fakeGPU(t, &bytes.Buffer{}, "WAITS", path, "DELAY_US", "500")
	simulated, seen := uint64(0), uint64(0)
	before := rt.gpu.before
	rt.gpu.before = func(s *cuda.Stream) error { simulated++; return before(s) }
	return openGPU(t, rt, model, onnx.GPUOptions{}), func() uint64 {
		count, err := os.ReadFile(path)
		require.NoError(t, err)
		all := binary.NativeEndian.Uint64(count) - simulated
		since := all - seen
		seen = all
		return since
	}
}

// TestGPUWaitsOnce: a step waits for the device once, whatever is copied where; also
// where ONNX Runtime allocates the outputs, which are of another size every time.
func TestGPUWaitsOnce(t *testing.T) {
	r, waits := waitsOf(t, accumulate(2))
	client := stateTensor(t, r, tensor.Shape{40, 2}, make([]float32, 80)...)
	for lanes := int64(1); lanes <= 40; lanes++ {
		shape := tensor.Shape{lanes, 2}
		values, twice := make([]float32, 2*lanes), make([]float32, 2*lanes)
		for i := range values {
			values[i], twice[i] = float32(i), 2*float32(i)
		}
		x, old := ioTensor(t, r, shape, values...), stateTensor(t, r, shape, values...)
		y, next := ioTensor(t, r, shape), stateTensor(t, r, shape, values...)
		chunk, err := r.Memory().Alloc(8)
		require.NoError(t, err)
		states := func(tensor statebuffer.Block) []statebuffer.Transfer { // of the first lane
			return []statebuffer.Transfer{{Layout: statebuffer.Layout{Pieces: 1, PieceBytes: 8}, Chunks: []statebuffer.Block{chunk}, Slots: []statebuffer.Slot{{}}, Tensor: tensor.At(0, 8), Lanes: 1}}
		}
		require.NoError(t, r.Memory().Scatter(states(old.Data)))
		waits()

		require.NoError(t, r.Memory().Gather(states(old.Data)))
		around := waits()
		r.Begin()
		kept, err := r.CopyOut(next.Data)
		require.NoError(t, err)
		r.CopyOutTo(y.Data, client.Data.Addr)
		require.NoError(t, r.Run([]onnx.Tensor{x, old}, []onnx.Tensor{y, next}))
		require.EqualValues(t, 1, waits())
		r.Memory().Clear([]statebuffer.Block{chunk})
		require.NoError(t, r.Memory().Scatter(states(next.Data)))
		if around += waits(); lanes > 6 { // until then what the launches are told by is allocated
			require.Zero(t, around, "states are gathered, cleared and stored without a wait")
		}
		require.Equal(t, asBytes(twice), kept)

		require.NoError(t, r.stream.Set(client.Data.Addr, 0, client.Data.Size))
		r.Begin()
		open := leftOpen(r)
		require.NoError(t, r.Submit([]onnx.Tensor{x, old}, open))
		require.Zero(t, waits())
		require.Equal(t, shape, open[1].Shape, "known before anything is waited for")
		kept, err = r.CopyOut(open[1].Data)
		require.NoError(t, err)
		r.CopyOutTo(open[1].Data.At(8*(lanes-1), 8), client.Data.Addr+8)
		require.NoError(t, r.Wait())
		require.EqualValues(t, 1, waits())
		require.Equal(t, asBytes(twice), kept)
		require.Equal(t, twice[2*lanes-2:], onDevice(client.Data)[2:4])
	}
	require.Len(t, r.pinned.buffers, 1)
	require.NotEmpty(t, r.pinned.replaced, "it has grown, without a wait")
	require.Less(t, len(r.pinned.replaced), 10)
}

// TestGPUFailedSubmit leaves nothing in the stream, and nothing of what was asked for.
func TestGPUFailedSubmit(t *testing.T) {
	r := openGPU(t, fakeGPU(t, &bytes.Buffer{}), accumulate(2), onnx.GPUOptions{})
	shape := tensor.Shape{1, 2}
	x, old := ioTensor(t, r, shape, 1, 2), stateTensor(t, r, shape, 3, 4)
	client := stateTensor(t, r, shape, 7, 7)
	require.ErrorContains(t, r.Submit([]onnx.Tensor{x}, leftOpen(r)), "1 inputs and 2 outputs")
	r.CopyOutTo(old.Data, client.Data.Addr)
	require.NoError(t, r.Wait())
	require.Equal(t, []float32{7, 7}, onDevice(client.Data))
	open := leftOpen(r)
	require.NoError(t, r.Submit([]onnx.Tensor{x, old}, open))
	require.NoError(t, r.Wait())
	require.Equal(t, []float32{7, 7}, onDevice(client.Data))
	require.Equal(t, []float32{4, 6}, onDevice(open[1].Data))
}

// TestGPUPinnedPoolGrows while something is still in the stream.
func TestGPUPinnedPoolGrows(t *testing.T) {
	var log bytes.Buffer
	r := openGPU(t, fakeGPU(t, &log, "DELAY_US", "3000"), accumulate(2), onnx.GPUOptions{})
	state := stateTensor(t, r, tensor.Shape{1000}, make([]float32, 1000)...)
	for _, size := range []int64{4, 400, 4000} {
		require.NoError(t, r.stream.Set(state.Data.Addr, 1, state.Data.Size))
		r.Begin()
		_, err := r.CopyOut(state.Data.At(0, size))
		require.NoError(t, err)
	}
	require.Len(t, r.pinned.buffers, 1)
	require.Len(t, r.pinned.replaced, 2)
	r.Close()
	require.Empty(t, log.String(), "all was given back")
}

// TestGPUWritesTakeOnePiece: answers without a run, of which there may be any number
// before the next one, take no more pinned memory than one.
func TestGPUWritesTakeOnePiece(t *testing.T) {
	r := openGPU(t, fakeGPU(t, &bytes.Buffer{}), accumulate(2), onnx.GPUOptions{})
	shape := tensor.Shape{1, 2}
	state, client := stateTensor(t, r, shape, 3, 4), stateTensor(t, r, shape, 0, 0)
	r.Begin()
	kept, err := r.CopyOut(state.Data)
	require.NoError(t, err)
	copy(kept, asBytes([]float32{1, 2}))
	for n := range 20 {
		require.NoError(t, r.Write(client.Data.Addr, asBytes([]float32{5, float32(n)})))
		require.Equal(t, []float32{5, float32(n)}, onDevice(client.Data))
	}
	require.Len(t, r.pinned.buffers, 2)
	require.Equal(t, asBytes([]float32{1, 2}), kept, "what the run uses is its own")
}
