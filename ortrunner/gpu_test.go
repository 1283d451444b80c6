package ortrunner

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	ort "github.com/yalue/onnxruntime_go"

	"tritonstateful/internal/cuda"
	"tritonstateful/internal/cuda/fakedriver"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/ortrunner/onnxtest"
	"tritonstateful/statebuffer"
	"tritonstateful/statebuffer/memorytest"
)

// fakeGPU is a Runtime whose GPU is the fake driver's, and simulated.
func fakeGPU(t testing.TB, log *bytes.Buffer, settings ...string) *Runtime {
	t.Helper()
	settings = append(settings, "READABLE", "1")
	rt, err := New(Options{Library: library(t), LogLevel: 3, Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	require.NoError(t, err)
	simulateGPU(t, rt, fakedriver.Library(t, settings...))
	return rt
}

// openGPU loads a model on the simulated GPU and closes it when the test ends.
func openGPU(t testing.TB, rt *Runtime, model onnxtest.Model, options onnx.GPUOptions) *gpuRunner {
	t.Helper()
	opened, err := rt.Open(onnx.SessionOptions{Path: model.Write(t), Provider: onnx.CUDA, IntraOpThreads: 1, GPU: options})
	require.NoError(t, err)
	t.Cleanup(opened.Close)
	return opened.(*gpuRunner)
}

// TestCapability asks the driver for the compute capability of a GPU.
func TestCapability(t *testing.T) {
	rt := fakeGPU(t, &bytes.Buffer{})
	capability, err := rt.Capability(0)
	require.NoError(t, err)
	require.Equal(t, "9.0", capability)
	_, err = rt.Capability(99)
	require.ErrorContains(t, err, "GPU 99")
}

// oneStep is the tensors of a run of accumulate(2) with a lane of 1 and 2.
func oneStep(t testing.TB, r *gpuRunner) (inputs, outputs []onnx.Tensor) {
	t.Helper()
	shape := tensor.Shape{1, 2}
	inputs = []onnx.Tensor{ioTensor(t, r, shape, 1, 2), stateTensor(t, r, shape, 0, 0)}
	return inputs, []onnx.Tensor{ioTensor(t, r, shape), stateTensor(t, r, shape, 0, 0)}
}

// ioTensor is a tensor of floats in memory of the host.
func ioTensor(t testing.TB, r *gpuRunner, shape tensor.Shape, elements ...float32) onnx.Tensor {
	t.Helper()
	size, err := shape.Bytes(tensor.FP32)
	require.NoError(t, err)
	block, err := r.IO().Alloc(size)
	require.NoError(t, err)
	copy(block.Bytes, asBytes(elements))
	return onnx.Tensor{Data: block, DType: tensor.FP32, Shape: shape}
}

func asBytes(elements []float32) []byte {
	b := make([]byte, 0, 4*len(elements))
	for _, f := range elements {
		b = appendFloat(b, f)
	}
	return b
}

// stateTensor is one in memory of the device.
func stateTensor(t testing.TB, r *gpuRunner, shape tensor.Shape, elements ...float32) onnx.Tensor {
	t.Helper()
	block, err := r.Memory().Alloc(int64(4 * len(elements)))
	require.NoError(t, err)
	require.Nil(t, block.Bytes)
	require.NoError(t, r.memory.Upload(block, asBytes(elements)))
	return onnx.Tensor{Data: block, DType: tensor.FP32, Shape: shape}
}

// TestGPURun runs with an input from the host, a state on the device, an output
// for the host and a new state for the device.
func TestGPURun(t *testing.T) {
	var log bytes.Buffer
	r := openGPU(t, fakeGPU(t, &log, "DELAY_US", "300"), accumulate(2), onnx.GPUOptions{})
	shape := tensor.Shape{2, 2}
	x, y := ioTensor(t, r, shape, 1, 2, 3, 4), ioTensor(t, r, shape)
	state := [2]onnx.Tensor{stateTensor(t, r, shape, 10, 20, 30, 40), stateTensor(t, r, shape, 0, 0, 0, 0)}
	want := []float32{10, 20, 30, 40}
	for step := range 6 {
		in, out := state[step%2], state[(step+1)%2]
		require.NoError(t, r.Run([]onnx.Tensor{x, in}, []onnx.Tensor{y, out}))
		for i := range want {
			want[i] += float32(i + 1)
			require.Equal(t, 2*want[i], elements[float32](t, y)[i], "step %d", step)
		}
		require.NoError(t, r.stream.Sync())
		require.Equal(t, want, onDevice(out.Data))
	}
	require.Len(t, r.bindings.all, 2, "one for each place of the state")
	r.Close()
	r.Close()
	require.Empty(t, log.String())
	require.ErrorContains(t, r.run(), "closed")
}

// TestGPUUnwanted leaves out an output.
func TestGPUUnwanted(t *testing.T) {
	r := openGPU(t, fakeGPU(t, &bytes.Buffer{}), accumulate(2), onnx.GPUOptions{CUDAGraph: true})
	shape := tensor.Shape{1, 2}
	x, old := ioTensor(t, r, shape, 1, 2), stateTensor(t, r, shape, 3, 4)
	outputs := []onnx.Tensor{{}, {DType: tensor.FP32}}
	require.NoError(t, r.Run([]onnx.Tensor{x, old}, outputs))
	require.Zero(t, outputs[0].Data.Size)
	// What ONNX Runtime allocates is the CPU's here.
	require.Equal(t, []float32{4, 6}, unsafe.Slice((*float32)(r.call.results[1].data), 2))
	next := stateTensor(t, r, shape, 0, 0)
	require.NoError(t, r.WarmUp([]onnx.Tensor{x, old}, []onnx.Tensor{{}, next}))
	require.Equal(t, 1, r.bindings.all[1].graph)
}

// TestGPUAllocates leaves both outputs to ONNX Runtime; what was copied of them
// stays until the next run.
func TestGPUAllocates(t *testing.T) {
	r := openGPU(t, fakeGPU(t, &bytes.Buffer{}), accumulate(2), onnx.GPUOptions{})
	for lanes := int64(1); lanes < 4; lanes++ {
		shape := tensor.Shape{lanes, 2}
		values := make([]float32, 2*lanes)
		values[0] = float32(lanes)
		x, old := ioTensor(t, r, shape, values...), stateTensor(t, r, shape, values...)
		outputs := leftOpen(r)
		require.NoError(t, r.Run([]onnx.Tensor{x, old}, outputs))
		require.Equal(t, shape, outputs[0].Shape)
		require.Nil(t, outputs[0].Data.Bytes, "it is the device's")
		require.Equal(t, 8*lanes, outputs[1].Data.Size)
	}
}

// TestGPUAllocatesAgain: what a model writes may depend on the values that it reads, so
// that an output is of another shape although the inputs are where they were.
func TestGPUAllocatesAgain(t *testing.T) {
	r := openGPU(t, fakeGPU(t, &bytes.Buffer{}), nonZero(), onnx.GPUOptions{})
	x := ioTensor(t, r, tensor.Shape{4}, 0, 0, 0, 0)
	for _, found := range []int64{1, 3, 3, 0, 2} {
		values := make([]float32, 4)
		for i := range found {
			values[i] = 1
		}
		copy(x.Data.Bytes, asBytes(values))
		outputs := leftOpen(r)
		require.NoError(t, r.Run([]onnx.Tensor{x}, outputs))
		require.Equal(t, tensor.Shape{1, found}, outputs[0].Shape)
		require.Equal(t, 8*found, outputs[0].Data.Size)
	}
	require.Len(t, r.bindings.all, 1)
}

// TestGPUCopiesIn takes a lane of an input from the device.
func TestGPUCopiesIn(t *testing.T) {
	r := openGPU(t, fakeGPU(t, &bytes.Buffer{}), accumulate(2), onnx.GPUOptions{})
	shape := tensor.Shape{3, 2}
	x, y := ioTensor(t, r, shape, 1, 1, 1, 1, 1, 1), ioTensor(t, r, shape)
	there := stateTensor(t, r, tensor.Shape{1, 2}, 50, 60)
	old, next := stateTensor(t, r, shape, 0, 0, 0, 0, 0, 0), stateTensor(t, r, shape, 0, 0, 0, 0, 0, 0)
	r.CopyInFrom(x.Data.At(8, 8), there.Data.Addr)
	run := func() []float32 {
		require.NoError(t, r.Run([]onnx.Tensor{x, old}, []onnx.Tensor{y, next}))
		return elements[float32](t, y)
	}
	require.Equal(t, []float32{2, 2, 100, 120, 2, 2}, run())
	require.Equal(t, []float32{2, 2, 2, 2, 2, 2}, run(), "only the next run")
	require.Panics(t, func() { r.CopyInFrom(old.Data, there.Data.Addr) })
}

// onDevice is what is at an address of the fake device at this moment, whatever
// is still to be done there.
func onDevice(b statebuffer.Block) []float32 {
	at := uintptr(b.Addr)
	floats := unsafe.Slice(*(**float32)(unsafe.Pointer(&at)), b.Size/4)
	return slices.Clone(floats)
}

// TestGPUCopiesOut copies parts of outputs to where others want them on the device,
// and a state to the host: all is there when Run returns, which waits once.
func TestGPUCopiesOut(t *testing.T) {
	r := openGPU(t, fakeGPU(t, &bytes.Buffer{}, "DELAY_US", "3000"), accumulate(2), onnx.GPUOptions{})
	shape := tensor.Shape{3, 2}
	x, y := ioTensor(t, r, shape, 1, 2, 3, 4, 5, 6), ioTensor(t, r, shape)
	old, next := stateTensor(t, r, shape, 10, 10, 10, 10, 10, 10), stateTensor(t, r, shape, 0, 0, 0, 0, 0, 0)
	client := stateTensor(t, r, tensor.Shape{4, 2}, 0, 0, 0, 0, 0, 0, 0, 0)
	run := func() {
		require.NoError(t, r.Run([]onnx.Tensor{x, old}, []onnx.Tensor{y, next}))
	}
	for range 5 {
		require.NoError(t, r.stream.Set(client.Data.Addr, 0, client.Data.Size))
		require.NoError(t, r.stream.Sync())
		r.Begin()
		r.CopyOutTo(y.Data.At(8, 8), client.Data.Addr+8)      // of an output for the host
		r.CopyOutTo(next.Data.At(16, 8), client.Data.Addr+16) // of a state
		kept, err := r.CopyOut(next.Data)
		require.NoError(t, err)
		run()
		require.Equal(t, []float32{0, 0, 26, 28, 15, 16, 0, 0}, onDevice(client.Data))
		require.Equal(t, asBytes([]float32{11, 12, 13, 14, 15, 16}), kept)
		require.Equal(t, []float32{22, 24, 26, 28, 30, 32}, elements[float32](t, y))
	}
	require.Len(t, r.pinned.buffers, 1, "pinned memory is used again")

	require.NoError(t, r.Write(client.Data.Addr, asBytes([]float32{7, 8})))
	require.Equal(t, []float32{7, 8, 26, 28, 15, 16, 0, 0}, onDevice(client.Data))
	run()
	require.Equal(t, []float32{7, 8, 26, 28, 15, 16, 0, 0}, onDevice(client.Data), "only the next run copies")

	r.CopyOutTo(y.Data, client.Data.Addr)
	r.CopyInFrom(x.Data.At(0, 8), client.Data.Addr)
	r.Begin() // that run never came
	run()
	require.Equal(t, []float32{7, 8, 26, 28, 15, 16, 0, 0}, onDevice(client.Data))
	require.Equal(t, []float32{22, 24, 26, 28, 30, 32}, elements[float32](t, y))
}

// TestGPURefuses what a run cannot take.
func TestGPURefuses(t *testing.T) {
	rt := fakeGPU(t, &bytes.Buffer{})
	r := openGPU(t, rt, accumulate(2), onnx.GPUOptions{})
	shape := tensor.Shape{1, 2}
	x, y := ioTensor(t, r, shape, 1, 2), ioTensor(t, r, shape)
	old, next := stateTensor(t, r, shape, 0, 0), stateTensor(t, r, shape, 0, 0)
	err := r.Run([]onnx.Tensor{x}, []onnx.Tensor{y, next})
	require.ErrorContains(t, err, "1 inputs and 2 outputs")
	heap := x
	heap.Data = statebuffer.Block{Addr: 12345, Bytes: make([]byte, 8), Size: 8}
	err = r.Run([]onnx.Tensor{heap, old}, []onnx.Tensor{y, next})
	require.ErrorContains(t, err, `8 bytes at host address 0x3039`)
	short := x
	short.Shape = tensor.Shape{2, 2}
	err = r.Run([]onnx.Tensor{short, old}, []onnx.Tensor{y, next})
	require.ErrorContains(t, err, `input "x": shape [2,2] of FP32 takes 16 bytes`)
	require.NoError(t, r.Run([]onnx.Tensor{x, old}, []onnx.Tensor{y, next}))
	require.ErrorContains(t, r.Probe([]onnx.Tensor{short, old}, []onnx.Tensor{y, next}), "takes 16 bytes")
	require.NoError(t, r.Probe([]onnx.Tensor{x, old}, []onnx.Tensor{y, next}))
	_, err = rt.Open(onnx.SessionOptions{Path: stringIdentity().Write(t), Provider: onnx.CUDA})
	require.ErrorContains(t, err, "use KIND_CPU instances")
}

// TestGPUManyShapes keeps no more bindings than it should, and those of the
// warm-up until it is closed.
func TestGPUManyShapes(t *testing.T) {
	r := openGPU(t, fakeGPU(t, &bytes.Buffer{}, "DELAY_US", "0"), accumulate(1), onnx.GPUOptions{})
	rng := rand.New(rand.NewPCG(1, 2))
	const most = 200
	x, y := ioTensor(t, r, tensor.Shape{most, 1}), ioTensor(t, r, tensor.Shape{most, 1})
	old, err := r.Memory().Alloc(4 * most)
	require.NoError(t, err)
	next, err := r.Memory().Alloc(4 * most)
	require.NoError(t, err)
	tensors := func(lanes int64) (inputs, outputs []onnx.Tensor) {
		cut := func(b statebuffer.Block) onnx.Tensor {
			return onnx.Tensor{Data: b.At(0, 4*lanes), DType: tensor.FP32, Shape: tensor.Shape{lanes, 1}}
		}
		return []onnx.Tensor{cut(x.Data), cut(old)}, []onnx.Tensor{cut(y.Data), cut(next)}
	}
	for _, lanes := range []int64{1, 8} {
		inputs, outputs := tensors(lanes)
		require.NoError(t, r.WarmUp(inputs, outputs))
	}
	warm := []*uint64{&r.bindings.all[0].key[0], &r.bindings.all[1].key[0]}
	for step := range 400 {
		inputs, outputs := tensors(1 + rng.Int64N(most))
		value := float32(step)
		for i := range inputs[0].Data.Bytes {
			inputs[0].Data.Bytes[i] = asBytes([]float32{value})[i%4]
		}
		require.NoError(t, r.Run(inputs, outputs))
		require.Equal(t, 2*value, elements[float32](t, outputs[0])[0])
	}
	require.Len(t, r.bindings.all, maxBindings+2)
	require.Same(t, warm[0], &r.bindings.all[0].key[0])
	require.Same(t, warm[1], &r.bindings.all[1].key[0])
}

// TestGPURunAllocatesNothing in Go, once its tensors are known.
func TestGPURunAllocatesNothing(t *testing.T) {
	r := openGPU(t, fakeGPU(t, &bytes.Buffer{}, "DELAY_US", "0"), accumulate(2), onnx.GPUOptions{})
	inputs, outputs := oneStep(t, r)
	require.Zero(t, testing.AllocsPerRun(50, func() { require.NoError(t, r.Run(inputs, outputs)) }))
}

// TestGPULoadFails says all that is missing at once, and what to do.
func TestGPULoadFails(t *testing.T) {
	path := accumulate(2).Write(t)
	nowhere := filepath.Join(t.TempDir(), "libcuda.so.1")
	rt, err := New(Options{Library: library(t), LogLevel: 3, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	rt.driver = openDriver(nowhere)
	for _, p := range []onnx.Provider{onnx.CUDA, onnx.TensorRT} {
		_, err = rt.Open(onnx.SessionOptions{Path: path, Provider: p})
		require.ErrorContains(t, err, "no CUDA driver: "+nowhere)
		require.ErrorContains(t, err, "install NVIDIA's driver")
		require.ErrorContains(t, err, fmt.Sprintf("execution provider %v: this ONNX Runtime library was built for CPU only: replace it", p))
		require.Equal(t, status.Unavailable, status.CodeOf(err))
	}
	withDriver := fakeGPU(t, &bytes.Buffer{}, "MEMORY", "300000")
	_, err = withDriver.Open(onnx.SessionOptions{Path: path, Provider: onnx.CUDA, Device: 1})
	require.ErrorContains(t, err, "GPU 1: this process sees 1 GPUs")
	_, err = withDriver.Open(onnx.SessionOptions{Path: path, Provider: onnx.TensorRT, GPU: onnx.GPUOptions{CacheFolder: path}})
	require.ErrorContains(t, err, "parameter trt_cache_dir: mkdir 1/model.onnx: not a directory")
	withDriver.gpu.provide = provideGPU
	_, err = withDriver.Open(onnx.SessionOptions{Path: path, Provider: onnx.CUDA, GPU: onnx.GPUOptions{CUDAGraph: true}})
	require.ErrorContains(t, err, "execution provider CUDA does not start")
	require.ErrorContains(t, err, "libonnxruntime_providers_cuda.so")
	_, err = withDriver.Open(onnx.SessionOptions{Path: path, Provider: onnx.TensorRT})
	require.ErrorContains(t, err, "execution provider TensorRT does not start: ")
	withDriver.gpu.provide = func(*ort.SessionOptions, onnx.SessionOptions, *cuda.Stream) error { return nil }
	opened, err := withDriver.Open(onnx.SessionOptions{Path: path, Provider: onnx.CUDA})
	require.NoError(t, err)
	defer opened.Close()
	for _, memory := range []statebuffer.Memory{opened.Memory(), opened.(*gpuRunner).IO()} {
		_, err = memory.Alloc(1 << 20)
		require.ErrorContains(t, err, "allocating 1048576 bytes on GPU 0")
		require.Equal(t, status.Unavailable, status.CodeOf(err))
	}
}

// TestGPUDescription: the management library knows more than the driver, and may
// not be there.
func TestGPUDescription(t *testing.T) {
	const uuid = "00010203-0405-0607-0809-0a0b0c0d0e0f"
	rt := fakeGPU(t, &bytes.Buffer{}, "MEMORY", "300000000")
	load := func() onnx.DeviceRunner { return openGPU(t, rt, accumulate(2), onnx.GPUOptions{}) }
	plain := onnx.Device{Name: "Fake GPU A", UUID: "GPU-" + uuid}
	require.Equal(t, plain, load().Device())
	require.Equal(t, "GPU 0 (Fake GPU A, GPU-"+uuid+")", plain.String())
	free, total, err := load().MemInfo()
	require.NoError(t, err)
	require.Equal(t, int64(300000000), total)
	require.Positive(t, free)

	asked := ""
	rt.identify = func(u string) (Identity, error) {
		asked = u
		return Identity{UUID: "MIG-" + u, Whole: "GPU-9", Memory: "1.0 of 2.0 GiB free"}, nil
	}
	part := load().Device()
	require.Equal(t, onnx.Device{Name: "Fake GPU A", UUID: "MIG-" + uuid, Whole: "GPU-9", Managed: "1.0 of 2.0 GiB free"}, part)
	require.Equal(t, "GPU 0 (Fake GPU A, MIG-"+uuid+", a part of GPU-9)", part.String())
	require.Equal(t, uuid, asked)

	rt.identify = func(string) (Identity, error) { return Identity{}, errors.New("no NVML") }
	require.Equal(t, plain, load().Device())
}

// TestMemories: what tensors of runs are in is memory as any other.
func TestMemories(t *testing.T) {
	rt := fakeGPU(t, &bytes.Buffer{}, "DELAY_US", "0")
	t.Run("pinned", func(t *testing.T) {
		r := openGPU(t, rt, accumulate(2), onnx.GPUOptions{})
		memorytest.MemorySuite(t, func() statebuffer.Memory { return r.IO() })
	})
	t.Run("host", func(t *testing.T) {
		opened, err := rt.Open(onnx.SessionOptions{Path: accumulate(2).Write(t)})
		require.NoError(t, err)
		defer opened.Close()
		memorytest.MemorySuite(t, opened.Memory)
	})
}

var _ onnx.DeviceRunner = (*gpuRunner)(nil)
