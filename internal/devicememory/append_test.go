package devicememory

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// TestAppendedStates: values that runs add to, or leave as they are, are the same
// here as in the host's memory, with kernels and with copies.
func TestAppendedStates(t *testing.T) {
	for _, settings := range [][]string{{"DELAY_US", "20"}, {"DELAY_US", "0", "NO_PTX", "1"}} {
		t.Run(fmt.Sprint(settings), func(t *testing.T) {
			compareAppended(t, newMemory(t, device(t, settings...)))
		})
	}
}

// compareAppended gives two stores, of which one is on the device, the same runs.
func compareAppended(t *testing.T, m *Memory) {
	const lanes = 3
	varying := []statebuffer.Varying{
		{Name: "batch outside", Axis: 0, Update: statebuffer.Append, AppendAxis: 2, InitialShape: tensor.Shape{1, 3, 1, 5}},
		{Name: "batch inside", Axis: 2, Update: statebuffer.Append, AppendAxis: 1, InitialShape: tensor.Shape{2, 0, 1, 5}},
		{Name: "in one piece", Axis: 0, Update: statebuffer.Append, AppendAxis: 1, InitialShape: tensor.Shape{1, 2, 2, 5}},
		{Name: "kept", Axis: 0, Update: statebuffer.KeepIfEmpty, InitialShape: tensor.Shape{1, 1, 2, 5}},
	}
	for i := range varying {
		varying[i].DType = tensor.Int16
	}
	open := func(memory statebuffer.Memory) *statebuffer.Store {
		s, err := statebuffer.NewStore(statebuffer.Options{
			Memory: memory, Varying: varying, MaxLanes: lanes,
			Sizing: statebuffer.Sizing{Initial: lanes, MaxChunks: 1}, Limits: statebuffer.Limits{Tombstones: 1},
		})
		require.NoError(t, err)
		return s
	}
	host, onDevice := open(&statebuffer.Heap{}), open(m)
	rng := rand.New(rand.NewPCG(1, 2))
	for step := range 8 {
		gather := func(s *statebuffer.Store) *statebuffer.Step {
			var all []statebuffer.Lane
			for n := range uint64(lanes - 1) { // the last lane is padding
				q, err := s.Continue(statebuffer.Key{Number: n + 1}, time.Second)
				if err != nil {
					q, err = s.Begin(statebuffer.Key{Number: n + 1}, time.Second)
				}
				require.NoError(t, err)
				all = append(all, statebuffer.Lane{Sequence: q})
			}
			run, err := s.Gather(all, lanes)
			require.NoError(t, err)
			return run
		}
		want, got := gather(host), gather(onDevice)
		for i := range varying {
			v, a, b := &varying[i], &want.Varying[i], &got.Varying[i]
			require.Equal(t, a.InShape, b.InShape)
			same(t, m, b.In, a.In, fmt.Sprintf("step %d, %s", step, v.Name))
			a.OutShape = a.InShape.With(max(v.AppendAxis, 1), 1+rng.Int64N(2))
			if v.Update == statebuffer.KeepIfEmpty && step%3 != 1 {
				a.OutShape = a.InShape.With(0, 0)
			}
			bytes, err := a.OutShape.Bytes(v.DType)
			require.NoError(t, err)
			b.OutShape = a.OutShape
			b.Out, a.Out = both(t, rng, m, bytes, 0)
		}
		require.NoError(t, host.Commit(want, time.Second))
		require.NoError(t, onDevice.Commit(got, time.Second))
		require.NoError(t, m.Sync())
	}
	host.Close()
	onDevice.Close()
	freeAll(m)
}
