package devicememory

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/cuda"
	"tritonstateful/internal/cuda/kernels"
	"tritonstateful/statebuffer"
	"tritonstateful/statebuffer/memorytest"
)

// realDevice is a GPU of this machine, if the test was asked to use it.
func realDevice(t *testing.T) gpu {
	t.Helper()
	if os.Getenv("STATEFUL_GPU") == "" {
		t.Skip("needs a GPU: scripts/gpu_check.sh runs it")
	}
	driver, err := cuda.OpenLibrary(cuda.Library)
	require.NoError(t, err)
	return retain(t, driver)
}

// TestOnGPU is what only a GPU can show; scripts/gpu_check.sh makes a table of it.
func TestOnGPU(t *testing.T) {
	g := realDevice(t)
	t.Run("Driver", func(t *testing.T) { onGPUDriver(t, g) })
	t.Run("JIT", func(t *testing.T) { onGPUCompile(t, g) })
	t.Run("Kernels", func(t *testing.T) {
		m := newMemory(t, g)
		require.NoError(t, m.Degraded())
		memorytest.MemorySuite(t, func() statebuffer.Memory { return m })
		for seed := range uint64(500) {
			compareWithHost(t, m, rand.New(rand.NewPCG(seed, 9)))
		}
		t.Log("result: contract, and 500 random steps equal to the host's")
	})
	t.Run("Copies", func(t *testing.T) {
		m := newMemory(t, g)
		m.degraded = fmt.Errorf("asked for")
		memorytest.MemorySuite(t, func() statebuffer.Memory { return m })
	})
	t.Run("Appended", func(t *testing.T) { compareAppended(t, newMemory(t, g)) })
	t.Run("Full", func(t *testing.T) { onGPUFull(t, g) })
	t.Run("Cycles", func(t *testing.T) { onGPUCycles(t, g) })
	t.Run("Speed", func(t *testing.T) { onGPUSpeed(t, g) })
	t.Run("Slots", func(t *testing.T) { onGPUSlots(t, g) })
}

func onGPUDriver(t *testing.T, g gpu) {
	free, total, err := g.context.MemInfo()
	require.NoError(t, err)
	d := g.context.Device
	t.Logf("result: %v, %s, compute capability %d.%d, %d of %d MiB free", d, d.UUIDText(), d.Major, d.Minor, free>>20, total>>20)
}

func onGPUCompile(t *testing.T, g gpu) {
	begin := time.Now()
	module, err := g.context.Load(kernels.PTX)
	require.NoError(t, err)
	t.Logf("result: %v", time.Since(begin).Round(time.Millisecond))
	require.NoError(t, module.Unload())
}

// onGPUFull takes memory until there is none, and gives it back.
func onGPUFull(t *testing.T, g gpu) {
	m := newMemory(t, g)
	taken := int64(0)
	for {
		_, err := m.Alloc(1 << 30)
		if err != nil {
			require.ErrorContains(t, err, "out of memory")
			t.Logf("result: %d GiB, then: %v", taken>>30, err)
			break
		}
		taken += 1 << 30
	}
	freeAll(m)
	_, err := m.Alloc(1 << 30)
	require.NoError(t, err)
}

// onGPUCycles begins and ends sequences in a store that grows and shrinks: nothing
// is lost, and nothing is left in the slots.
func onGPUCycles(t *testing.T, g gpu) {
	cycles(t, newMemory(t, g), 10000)
	before, _, err := g.context.MemInfo()
	require.NoError(t, err)
	cycles(t, newMemory(t, g), 10000)
	after, _, err := g.context.MemInfo()
	require.NoError(t, err)
	t.Logf("result: %d bytes lost in 10000 sequences", before-after)
	require.Less(t, before-after, int64(8<<20))
}

func cycles(t *testing.T, m *Memory, count uint64) {
	t.Helper()
	const live, bytes = 100, 19072
	store, err := statebuffer.NewStore(statebuffer.Options{
		Memory: m, MaxLanes: 1, States: []statebuffer.State{{Name: "a", Layout: statebuffer.Layout{Pieces: 4, PieceBytes: bytes / 4}}, {Name: "b", Layout: statebuffer.Layout{Pieces: 1, PieceBytes: 12}}},
		Sizing: statebuffer.Sizing{Initial: 8, Subsequent: 8, MaxChunks: 20, AllocBelow: 8, DeallocAbove: 16},
	})
	require.NoError(t, err)
	got, zeros := make([]byte, bytes), make([]byte, bytes)
	step := func(q *statebuffer.Sequence, end bool) {
		step, err := store.Gather([]statebuffer.Lane{{Sequence: q, End: end}}, 1)
		require.NoError(t, err)
		require.NoError(t, m.stream.Set(step.Out[0].Addr, 7, step.Out[0].Size))
		require.NoError(t, store.Commit(step, 0))
		_, err = store.Maintain(func() time.Duration { return 0 })
		require.NoError(t, err)
	}
	for n := range count {
		q, err := store.Begin(statebuffer.Key{Number: n + 1}, 0)
		require.NoError(t, err)
		step(q, false)
		if n >= live {
			old, err := store.Continue(statebuffer.Key{Number: n + 1 - live}, 0)
			require.NoError(t, err)
			step(old, true)
		}
	}
	for n := count - live; n < count; n++ {
		store.End(statebuffer.Key{Number: n + 1})
	}
	q, err := store.Begin(statebuffer.Key{Number: 1}, 0)
	require.NoError(t, err)
	begun, err := store.Gather([]statebuffer.Lane{{Sequence: q}}, 1)
	require.NoError(t, err)
	require.NoError(t, m.Download(got, begun.In[0]))
	require.Equal(t, zeros, got, "a START reads zeros")
	store.Abort(begun, 0)
	store.Close()
	require.Empty(t, m.held)
}

// TestCycles is the same on the fake driver, which checks every border.
func TestCycles(t *testing.T) {
	cycles(t, newMemory(t, device(t, "DELAY_US", "0")), 300)
}

// onGPUSlots times steps whose new states go to the old ones' slots, or to fresh ones.
func onGPUSlots(t *testing.T, g gpu) {
	var took [2]time.Duration
	for i, fresh := range []bool{false, true} {
		m := newMemory(t, g)
		step := func(t []statebuffer.Transfer, gather bool) error {
			if gather {
				return m.Gather(t)
			}
			return errors.Join(m.Scatter(t), m.Sync())
		}
		took[i] = time.Duration(testing.Benchmark(func(b *testing.B) { benchmarkRows(b, m, 19072, fresh, step) }).NsPerOp())
	}
	t.Logf("result: 32 lanes of 97 states, in the slots they had %v a step, in fresh ones %v", took[0], took[1])
}

// mover is a way to move states, to be timed.
type mover struct {
	name    string
	offset  int64 // of every tensor: what is not aligned to 16 bytes is moved 4 bytes at a time
	kernels bool
}

// expected is what the design reckons with on an H200, by lanes, in microseconds.
var expected = map[int]int{1: 8, 8: 20, 32: 61, 128: 226, 256: 447}

// onGPUSpeed times a gather and a scatter of 97 states of 1.85 MB together, half of
// them with the batch after four others, as a streaming transducer has them. Each
// step takes other slots, so that they are not in the GPU's cache.
func onGPUSpeed(t *testing.T, g gpu) {
	var results []string
	for _, lanes := range []int{1, 8, 32, 128, 256} {
		for _, how := range []mover{{"16 bytes at a time", 0, true}, {"4 bytes at a time", 4, true}, {"single copies", 0, false}} {
			if !how.kernels && lanes > 32 {
				continue
			}
			m := newMemory(t, g)
			if !how.kernels {
				m.degraded = fmt.Errorf("asked for")
			}
			took, bytes := timeStep(t, m, lanes, how.offset)
			t.Logf("%d lanes, %s: %v a step, %.0f GB/s, expected %d us for 16 bytes at a time", lanes, how.name, took, float64(bytes)/took.Seconds()/1e9, expected[lanes])
			if how.kernels && how.offset == 0 {
				results = append(results, fmt.Sprintf("%d lanes %d us (%d)", lanes, took.Microseconds(), expected[lanes]))
			}
		}
	}
	t.Logf("result: %s; in brackets what was expected; more in the log", strings.Join(results, ", "))
}

func timeStep(t *testing.T, m *Memory, lanes int, offset int64) (took time.Duration, bytes int64) {
	const states, slots = 97, 512
	defer freeAll(m)
	transfers := make([]statebuffer.Transfer, states)
	for i := range transfers {
		l := statebuffer.Layout{Pieces: 1, PieceBytes: 19072}
		if i%2 == 0 {
			l = statebuffer.Layout{Pieces: 4, PieceBytes: 4768}
		}
		chunk, err := m.Alloc(slots * l.LaneBytes())
		require.NoError(t, err)
		tensor, err := m.Alloc(int64(lanes)*l.LaneBytes() + offset)
		require.NoError(t, err)
		transfers[i] = statebuffer.Transfer{Layout: l, Chunks: []statebuffer.Block{chunk}, Initial: chunk.At(0, l.LaneBytes()), Tensor: tensor.At(offset, tensor.Size-offset), Lanes: lanes}
		bytes += 4 * int64(lanes) * l.LaneBytes() // read and written, twice
	}
	steps := 0
	list := make([]statebuffer.Slot, lanes)
	begin := time.Now()
	for ; steps < 10 || time.Since(begin) < time.Second; steps++ {
		if steps == 3 {
			begin = time.Now() // the first ones warm up
		}
		for i := range list {
			list[i].Index = int32((i*37 + steps*101) % slots)
		}
		for i := range transfers {
			transfers[i].Slots = list
		}
		require.NoError(t, m.Gather(transfers))
		require.NoError(t, m.Scatter(transfers))
		require.NoError(t, m.Sync())
	}
	return time.Since(begin) / time.Duration(steps-3), bytes
}
