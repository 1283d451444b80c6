package devicememory

import (
	"fmt"
	"math/rand/v2"
	"os"
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
	driver, err := cuda.Open()
	require.NoError(t, err)
	first, err := driver.Device(0)
	require.NoError(t, err)
	context, err := first.Retain()
	require.NoError(t, err)
	stream, err := context.NewStream()
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, stream.Destroy())
		require.NoError(t, context.Release())
	})
	return gpu{context, stream}
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
	t.Run("Full", func(t *testing.T) { onGPUFull(t, g) })
	t.Run("Cycles", func(t *testing.T) { onGPUCycles(t, g) })
	t.Run("Speed", func(t *testing.T) { onGPUSpeed(t, g) })
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

// onGPUCycles takes and gives back: nothing is lost.
func onGPUCycles(t *testing.T, g gpu) {
	m := newMemory(t, g)
	before, _, err := g.context.MemInfo()
	require.NoError(t, err)
	for range 2000 {
		b, err := m.Alloc(1 << 20)
		require.NoError(t, err)
		m.Free(b)
	}
	after, _, err := g.context.MemInfo()
	require.NoError(t, err)
	t.Logf("result: %d bytes lost in 2000 cycles", before-after)
	require.Less(t, before-after, int64(8<<20))
}

// onGPUSpeed times a gather and a scatter of 97 states of 1.85 MB together, half of
// them with the batch behind four others, as a streaming transducer has them.
func onGPUSpeed(t *testing.T, g gpu) {
	for _, lanes := range []int{1, 8, 32, 128, 256} {
		for _, kernels := range []bool{true, false} {
			if !kernels && lanes > 32 {
				continue
			}
			m := newMemory(t, g)
			if !kernels {
				m.degraded = fmt.Errorf("asked for")
			}
			took, bytes := timeStep(t, m, lanes)
			t.Logf("%d lanes, kernels %v: %v a step, %.0f GB/s", lanes, kernels, took, float64(bytes)/took.Seconds()/1e9)
			if kernels && lanes == 32 {
				t.Logf("result: %v for 32 lanes of 97 states, 1.85 MB each (all sizes in the log)", took)
			}
		}
	}
}

func timeStep(t *testing.T, m *Memory, lanes int) (took time.Duration, bytes int64) {
	const states, rows = 97, 512
	defer freeAll(m)
	transfers := make([]statebuffer.Transfer, states)
	list := make([]statebuffer.Row, lanes)
	for i := range list {
		list[i].Index = int32((i * 37) % rows)
	}
	for i := range transfers {
		l := statebuffer.Layout{Runs: 1, RunBytes: 19072}
		if i%2 == 0 {
			l = statebuffer.Layout{Runs: 4, RunBytes: 4768}
		}
		chunk, err := m.Alloc(rows * l.RowBytes())
		require.NoError(t, err)
		tensor, err := m.Alloc(int64(lanes) * l.RowBytes())
		require.NoError(t, err)
		transfers[i] = statebuffer.Transfer{Layout: l, Chunks: []statebuffer.Block{chunk}, Initial: chunk.At(0, l.RowBytes()), Rows: list, Tensor: tensor, Lanes: lanes}
		bytes += 4 * int64(lanes) * l.RowBytes() // read and written, twice
	}
	steps := 0
	begin := time.Now()
	for ; steps < 10 || time.Since(begin) < time.Second; steps++ {
		if steps == 3 {
			begin = time.Now() // the first ones warm up
		}
		require.NoError(t, m.Gather(transfers))
		require.NoError(t, m.Scatter(transfers))
		require.NoError(t, m.Sync())
	}
	return time.Since(begin) / time.Duration(steps-3), bytes
}
