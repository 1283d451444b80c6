package backend

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// gpu is an accumulator on a device: a Heap plays the device's memory, another
// one the host's. Its Run does what a device does to the blocks of IO.
type gpu struct {
	*accumulator
	host   statebuffer.Heap
	there  map[uint64]byteRange // memory of the device that requests come from
	placed []func()
	warmed []int
}

type byteRange []byte

func (g *gpu) IO() statebuffer.Memory { return &g.host }
func (g *gpu) Device() string         { return "GPU 3 (Test)" }

func (g *gpu) Place(to statebuffer.Block, from uint64) {
	for start, bytes := range g.there {
		if from >= start && from+uint64(to.Size) <= start+uint64(len(bytes)) {
			g.placed = append(g.placed, func() { copy(to.Bytes, bytes[from-start:]) })
			return
		}
	}
	panic(fmt.Sprintf("nothing is at %#x", from))
}

func (g *gpu) Run(inputs, outputs []Tensor) error {
	for _, place := range g.placed {
		place()
	}
	g.placed = nil
	return g.accumulator.Run(inputs, outputs)
}

func (g *gpu) WarmUp(inputs, outputs []Tensor) error {
	g.warmed = append(g.warmed, int(inputs[1].Shape[0]))
	return g.Run(inputs, outputs)
}

func (g *gpu) Host(b statebuffer.Block) ([]byte, error) { return b.Bytes, nil }

// loadOnGPU is an instance whose runner is a gpu, and what it was opened with.
func loadOnGPU(t *testing.T, changes ...func(*setup)) (*Instance, *gpu, *[]SessionOptions) {
	t.Helper()
	set := newSetup()
	for _, change := range changes {
		change(set)
	}
	g := &gpu{accumulator: newAccumulator(&statebuffer.Heap{}, accumulate()), there: map[uint64]byteRange{}}
	var opened []SessionOptions
	model, err := NewModel(ModelInfo{Name: "model", Config: set.json()}, Host{
		Log: slog.New(newRecorder(slog.LevelInfo)), Clock: newServer(t).in.model.host.Clock,
		Open: func(o SessionOptions) (Runner, error) {
			opened = append(opened, o)
			if o.Provider == CPU {
				return newAccumulator(&statebuffer.Heap{}, accumulate()), nil
			}
			return g, nil
		},
	})
	require.NoError(t, err)
	in, err := model.NewInstance(InstanceInfo{Name: "model_0_3", Kind: "gpu", Device: 3})
	require.NoError(t, err)
	t.Cleanup(in.Close)
	return in, g, &opened
}

// TestGPUOptions: what the configuration says reaches the session, and TensorRT is
// told the shapes of all inputs, also of states and controls.
func TestGPUOptions(t *testing.T) {
	_, g, opened := loadOnGPU(t, param("enable_trt_caching", "1"), param("trt_cache_dir", "/cache"), param("enable_cuda_graph", "1"), param("gpu_mem_limit", "1000"))
	require.Len(t, *opened, 2, "once on the CPU, to read the shapes")
	got := (*opened)[1]
	require.Equal(t, 3, got.Device)
	require.Equal(t, TensorRT, got.Provider)
	require.True(t, got.GPU.FP16)
	require.True(t, got.GPU.CUDAGraph)
	require.Equal(t, "/cache", got.GPU.CacheFolder)
	require.Equal(t, int64(1000), got.GPU.MemoryLimit)
	most := int64(g.warmed[len(g.warmed)-1])
	shapes := map[string][3]tensor.Shape{}
	for _, s := range got.GPU.Shapes {
		shapes[s.Name] = [3]tensor.Shape{s.Least, s.Usual, s.Most}
	}
	require.Len(t, shapes, 3)
	require.Equal(t, tensor.Shape{1, 5}, shapes["Accumulate_In"][0])
	require.Equal(t, tensor.Shape{most, 5}, shapes["Accumulate_In"][2])
	require.Equal(t, tensor.Shape{4, 1, 5}, shapes["Input"][0])
	require.Equal(t, tensor.Shape{4, most, 5}, shapes["Input"][2])
	require.Equal(t, tensor.Shape{1, 1}, shapes[resetName][0])

	_, _, opened = loadOnGPU(t, param("ort_ep", "cuda"), param("compute_precision", "fp32"))
	require.Len(t, *opened, 1, "CUDA needs no shapes")
	require.Equal(t, SessionOptions{Path: (*opened)[0].Path, Name: "model_0_3", Provider: CUDA, Device: 3, Optimization: "all",
		IntraOpThreads: (*opened)[0].IntraOpThreads, InterOpThreads: (*opened)[0].InterOpThreads}, (*opened)[0])
}

// TestInputsOnDevice: some requests of a batch bring their input in the memory of
// a GPU, others in the host's.
func TestInputsOnDevice(t *testing.T) {
	s := newServer(t)
	g := &gpu{accumulator: s.runner, there: map[uint64]byteRange{}}
	s.in.runner, s.in.device = g, g
	next := uint64(0x7f0000000000)
	onDevice := func(r *Request) {
		input := &r.Inputs[0]
		g.there[next] = append(byteRange(nil), input.Data...)
		input.Device, input.Size, input.Data = next, int64(len(input.Data)), nil
		next += 1 << 16
	}
	s.batch(startOf(1).with(onDevice), startOf(2), startOf(3).with(onDevice)).ok()
	s.batch(nextOf(1), nextOf(3).with(onDevice)).ok()
	s.batch(nextOf(1), nextOf(2), nextOf(3)).ok()
	s.batch(nextOf(1).with(func(r *Request) {
		onDevice(r)
		r.Inputs[0].Size--
	})).want(`input "Input" has 79 bytes: want 80`)
	s.batch(nextOf(1).with(onDevice)).ok()
	p := port{Port: Port{Name: "x", DType: tensor.FP32}, axis: noAxis}
	err := p.check(&Input{Present: true, DType: tensor.FP32, Device: 1, Size: 4}, 1)
	require.ErrorContains(t, err, `input "x" is in GPU memory`)
}

// TestGPUWarmsUp every batch size that runs are padded to.
func TestGPUWarmsUp(t *testing.T) {
	in, g, _ := loadOnGPU(t)
	require.Contains(t, g.warmed, 1)
	require.Contains(t, g.warmed, in.wiring.maxLanes)
	require.True(t, in.TakesDevice())
}
