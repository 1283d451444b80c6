package statebuffer

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestScratch: it has what is needed, and in the end no more than some times of it.
func TestScratch(t *testing.T) {
	m := &Heap{}
	var s Scratch
	reserve := func(runs int, bytes int64) {
		for range runs {
			s.Begin(m)
			require.NoError(t, s.Reserve(m, bytes))
			require.GreaterOrEqual(t, s.Size, bytes)
			require.Equal(t, s.Size, m.Used())
		}
	}
	reserve(1, 0)
	require.Zero(t, m.Used())
	reserve(1, 64<<20)
	reserve(scratchRuns-3, 2<<20)
	require.Equal(t, int64(64<<20), m.Used(), "not at once")
	reserve(2*scratchRuns, 2<<20)
	require.Equal(t, int64(2<<20), m.Used())

	for range 10 { // what is needed now and then stays
		reserve(1, 64<<20)
		reserve(scratchRuns/2, 2<<20)
		require.Equal(t, int64(64<<20), m.Used())
	}
	reserve(2*scratchRuns, 17<<20)
	require.Equal(t, int64(64<<20), m.Used(), "a quarter of it was needed")
	reserve(2*scratchRuns, 100)
	require.Equal(t, int64(256), m.Used())
	reserve(1, scratchKept)
	reserve(2*scratchRuns, 100)
	require.Equal(t, int64(scratchKept), m.Used(), "what is small stays")

	m.Limit = m.Used()
	require.Error(t, s.Reserve(m, 2<<20))
	require.Equal(t, int64(scratchKept), s.Size, "what there was is there")
	s.Free(m)
	s.Free(m)
	require.Zero(t, m.Used())
}
