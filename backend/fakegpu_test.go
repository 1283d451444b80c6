package backend

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// gpu is a model on a device: a Heap stands for the device's memory, another one the
// host's. Its Run does what a device does to the blocks of IO.
type gpu struct {
	onnx.Runner
	t      *testing.T
	host   statebuffer.Heap
	there  map[uint64]byteRange // memory of the device that requests come from
	batch  *fakeBatch           // in whose memory of the device answers are wanted
	before []func()             // the next run
	after  []func()             // it
	writes int
	waits  int
	runs   bool  // from Submit to Wait
	ran    bool  // the last Submit
	broken error // of CopyOut, Write and MemInfo
	late   error // of Wait
	warmed []int
	part   onnx.Device // if it is a part of a GPU
}

// card is the memory of a gpu: it has a size.
type card struct {
	statebuffer.Heap
	bytes int64 // 0: as much as one likes
	asked []int64
}

func (c *card) CheckCapacity(bytes int64) error {
	c.asked = append(c.asked, bytes)
	if c.bytes > 0 && bytes > c.bytes-c.Used() {
		return fmt.Errorf("%d bytes are needed, of whose %d the CUDA driver says %d are free", bytes, c.bytes, c.bytes-c.Used())
	}
	return nil
}

type byteRange []byte

func (g *gpu) IO() statebuffer.Memory { return &g.host }
func (g *gpu) Device() onnx.Device {
	return cmp.Or(g.part, onnx.Device{Ordinal: 3, Name: "Test", UUID: "GPU-1", Managed: "5 of 6 GiB are free"})
}
func (g *gpu) MemInfo() (free, total int64, err error) { return 1000, 2000, g.broken }

func (g *gpu) Begin() { g.before, g.after = nil, nil }

func (g *gpu) CopyInFrom(to statebuffer.Block, from uint64) {
	for start, bytes := range g.there {
		if from >= start && from+uint64(to.Size) <= start+uint64(len(bytes)) {
			g.before = append(g.before, func() { copy(to.Bytes, bytes[from-start:]) })
			return
		}
	}
	panic(fmt.Sprintf("nothing is at %#x", from))
}

func (g *gpu) CopyOutTo(from statebuffer.Block, to uint64) {
	batch := g.batch
	g.after = append(g.after, func() { batch.write(to, from.Bytes) })
}

func (g *gpu) CopyOut(from statebuffer.Block) ([]byte, error) {
	if g.broken != nil {
		return nil, g.broken
	}
	to := make([]byte, from.Size)
	g.after = append(g.after, func() { copy(to, from.Bytes) })
	return to, nil
}

func (g *gpu) Write(to uint64, from []byte) error {
	g.writes++
	if g.broken == nil {
		g.batch.write(to, from)
	}
	return g.broken
}

// write is what a device does to the memory that a client wants answers in.
func (b *fakeBatch) write(to uint64, from []byte) {
	require.False(b.t, b.finished)
	for start, page := range b.there {
		if to >= start && to+uint64(len(from)) <= start+uint64(len(page)) {
			copy(page[to-start:], from)
			return
		}
	}
	require.Fail(b.t, "this address was not reserved", "%#x", to)
}

func (g *gpu) Run(inputs, outputs []onnx.Tensor) error {
	err := g.Submit(inputs, outputs)
	return cmp.Or(err, g.Wait())
}

func (g *gpu) Submit(inputs, outputs []onnx.Tensor) error {
	require.False(g.t, g.runs, "the run before was not waited for")
	g.runs = true
	for _, do := range g.before {
		do()
	}
	err := g.Runner.Run(inputs, outputs)
	g.ran = err == nil
	return err
}

func (g *gpu) Wait() error {
	g.waits++
	if g.ran {
		for _, do := range g.after {
			do()
		}
	}
	g.runs, g.ran = false, false
	g.Begin()
	return g.late
}

func (g *gpu) WarmUp(inputs, outputs []onnx.Tensor) error {
	g.warmed = append(g.warmed, int(inputs[1].Shape[0]))
	return g.Run(inputs, outputs)
}

// gpuLoad is the load of an instance whose runner is a gpu.
type gpuLoad struct {
	gpu    *gpu
	model  *accumulator // that it runs
	card   *card        // its memory
	opened []onnx.SessionOptions
	onCPU  error // of opening the model there
	log    *recorder
}

func newGPULoad(t *testing.T) *gpuLoad {
	t.Helper()
	l := &gpuLoad{card: &card{}, log: newRecorder(slog.LevelInfo)}
	l.model = newAccumulator(l.card, accumulate())
	l.gpu = &gpu{Runner: l.model, t: t, there: map[uint64]byteRange{}}
	return l
}

func (l *gpuLoad) try(t *testing.T, changes ...func(*setup)) (*Instance, error) {
	t.Helper()
	set := newSetup(changes...)
	model, err := NewModel(ModelInfo{Name: "model", Version: 3, Config: set.json(), ReportMemory: set.memoryReport}, Server{
		Log: slog.New(l.log), Clock: newServer(t).in.model.server.Clock, Metrics: set.metrics,
		Open: func(o onnx.SessionOptions) (onnx.Runner, error) {
			l.opened = append(l.opened, o)
			if o.Provider == onnx.CPU {
				return newAccumulator(&statebuffer.Heap{}, accumulate()), l.onCPU
			}
			return l.gpu, nil
		},
	})
	require.NoError(t, err)
	return model.NewInstance(InstanceInfo{Name: "model_0_3", Kind: "gpu", Device: 3})
}

// loadOnGPU is an instance whose runner is a gpu, and how it was loaded.
func loadOnGPU(t *testing.T, changes ...func(*setup)) (*Instance, *gpuLoad) {
	t.Helper()
	l := newGPULoad(t)
	in, err := l.try(t, changes...)
	require.NoError(t, err)
	t.Cleanup(in.Close)
	return in, l
}

// TestGPUOptions: what the configuration says reaches the session, and TensorRT is
// told the shapes of all inputs, also of states and controls.
func TestGPUOptions(t *testing.T) {
	_, l := loadOnGPU(t, param("enable_trt_caching", "1"), param("trt_cache_dir", "/cache"), param("enable_cuda_graph", "1"), param("gpu_mem_limit", "1000"))
	require.Len(t, l.opened, 2, "once on the CPU, to read the shapes")
	got := l.opened[1]
	require.Equal(t, 3, got.Device)
	require.Equal(t, onnx.TensorRT, got.Provider)
	require.True(t, got.GPU.FP16)
	require.True(t, got.GPU.CUDAGraph)
	require.Equal(t, "/cache", got.GPU.CacheFolder)
	require.Equal(t, int64(1000), got.GPU.MemoryLimit)
	most := int64(l.gpu.warmed[len(l.gpu.warmed)-1])
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

	_, l = loadOnGPU(t, param("ort_ep", "cuda"), param("compute_precision", "fp32"), param("verify", "never"))
	require.Len(t, l.opened, 1, "CUDA needs no shapes")
	require.Equal(t, onnx.SessionOptions{Path: l.opened[0].Path, Name: "model_0_3", Provider: onnx.CUDA, Device: 3, Optimization: "all",
		IntraOpThreads: l.opened[0].IntraOpThreads, InterOpThreads: l.opened[0].InterOpThreads}, l.opened[0])
}

// TestNoRoomOnGPU: what does not fit is refused before anything is taken, with all
// that one has to know.
func TestNoRoomOnGPU(t *testing.T) {
	changes := []func(*setup){param("ort_ep", "cuda"), slots(16, 8)}
	fits, l := loadOnGPU(t, changes...)
	require.Len(t, l.card.asked, 2, "before everything, and before the first chunk")
	need := l.card.asked[0]
	require.Equal(t, need, l.card.Used()+fits.io.bytes(), "the tensors of a batch have a twin on the device")

	l = newGPULoad(t)
	l.card.bytes = need - 1
	_, err := l.try(t, changes...)
	require.ErrorContains(t, err, "no room on GPU 3 (Test, GPU-1)")
	require.ErrorContains(t, err, fmt.Sprintf("%d bytes are needed", need))
	require.ErrorContains(t, err, fmt.Sprintf("%d are free", need-1))
	for _, remedy := range []string{"max_candidate_sequences", "initial_buffer_size", "store_states_as_fp16", "gpu_mem_limit", "gpus of instance_group"} {
		require.ErrorContains(t, err, remedy)
	}
	require.Equal(t, status.Unavailable, status.CodeOf(err))
	require.Zero(t, l.card.Used())
	require.True(t, l.model.closed)

	l = newGPULoad(t)
	l.card.bytes = need
	in, err := l.try(t, changes...)
	require.NoError(t, err)
	in.Close()
}

// TestGPULabels: metrics of an instance on a GPU name it as Triton's own do, those
// of others have no such label.
func TestGPULabels(t *testing.T) {
	sink := &fakeSink{}
	_, l := loadOnGPU(t, measured(sink))
	require.Equal(t, MetricLabels{Model: "model", Version: 3, Instance: "model_0_3", GPUUUID: "GPU-1", GPUName: "Test"}, sink.labels)
	text := strings.Join(*l.log.lines, "\n")
	require.Contains(t, text, "ready on TensorRT, GPU 3 (Test, GPU-1)")
	require.Contains(t, text, "1000 of 2000 bytes are left")

	part := newGPULoad(t)
	part.gpu.part = onnx.Device{Ordinal: 3, Name: "Test MIG 1g", UUID: "MIG-2", Whole: "GPU-1"}
	in, err := part.try(t, measured(sink))
	require.NoError(t, err)
	defer in.Close()
	require.Equal(t, MetricLabels{Model: "model", Version: 3, Instance: "model_0_3", GPUUUID: "GPU-1", GPUName: "Test MIG 1g", GPUPart: "MIG-2"}, sink.labels)
	require.Contains(t, strings.Join(*part.log.lines, "\n"), "GPU 3 (Test MIG 1g, MIG-2, a part of GPU-1)")

	newServer(t, measured(sink))
	require.Equal(t, MetricLabels{Model: "model", Version: 3, Instance: "model_0"}, sink.labels)
}

// gpuServer is a server whose model is on a gpu.
func gpuServer(t *testing.T, changes ...func(*setup)) (*server, *gpu) {
	t.Helper()
	s := newServer(t, changes...)
	g := &gpu{Runner: s.runner, t: t, there: map[uint64]byteRange{}}
	s.in.runner, s.in.device = g, g
	s.onBatch = func(b *fakeBatch) { g.batch = b }
	return s, g
}

// TestGPUWarmsUp every batch size that runs are rounded up to.
func TestGPUWarmsUp(t *testing.T) {
	in, l := loadOnGPU(t)
	require.Contains(t, l.gpu.warmed, 1)
	require.Contains(t, l.gpu.warmed, in.plan.MaxLanes)
	require.True(t, in.TakesDevice())

	preferred := func(s *setup) { s.config.Sequence.Oldest.PreferredBatchSizes = []int{2, 5} }
	_, l = loadOnGPU(t, preferred, param("batch_padding", "preferred"))
	require.Equal(t, []int{2, 5, 8}, l.gpu.warmed, "all that runs are rounded up to")
	_, l = loadOnGPU(t, preferred)
	require.Equal(t, []int{1, 2, 5, 8}, l.gpu.warmed)
}

// TestShapesUnknown: TensorRT is told none where the CPU cannot open the model.
func TestShapesUnknown(t *testing.T) {
	l := newGPULoad(t)
	l.onCPU = errInjected
	in, err := l.try(t)
	require.NoError(t, err)
	defer in.Close()
	require.Empty(t, l.opened[1].GPU.Shapes)
	require.Len(t, l.log.having("WARN TensorRT learns the shapes"), 1)
}

// TestNoGraphOfVaryingShapes says why.
func TestNoGraphOfVaryingShapes(t *testing.T) {
	cfg := cacheConfig()
	cfg.Parameters["enable_cuda_graph"] = config.Value{String: "1"}
	model, log := newModel(t, "", (&setup{config: cfg}).json(), func(onnx.SessionOptions) (onnx.Runner, error) {
		return &gpu{Runner: cacheModel(), t: t}, nil
	})
	in, err := model.NewInstance(InstanceInfo{Name: "model_0_0", Kind: "gpu"})
	require.NoError(t, err)
	in.Close()
	require.Len(t, log.having("enable_cuda_graph has no effect"), 1)
}
