package devicememory

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/statebuffer"
)

// BenchmarkSlots is a step of 32 sequences with 97 states, whose new values go to the
// slots that the old ones were in, or to fresh ones as was planned. Here it is what the
// host does for it, up to the launch; on a GPU, scripts/gpu_check.sh times whole steps.
func BenchmarkSlots(b *testing.B) {
	for name, fresh := range map[string]bool{"kept": false, "fresh": true} {
		b.Run(name, func(b *testing.B) {
			m := newMemory(b, device(b, "DELAY_US", "0"))
			write := func(t []statebuffer.Transfer, gather bool) error { return m.nextList().write(t, gather) }
			benchmarkRows(b, m, 64, fresh, write)
		})
	}
}

func benchmarkRows(b *testing.B, m *Memory, bytes int64, fresh bool, do func(t []statebuffer.Transfer, gather bool) error) {
	const states, lanes, sequences = 97, 32, 512
	defer freeAll(m)
	slots := sequences
	if fresh {
		slots += lanes
	}
	transfers := make([]statebuffer.Transfer, states)
	for i := range transfers {
		l := statebuffer.Layout{Pieces: 1, PieceBytes: bytes}
		chunk, err := m.Alloc(int64(slots) * bytes)
		require.NoError(b, err)
		tensor, err := m.Alloc(lanes * bytes)
		require.NoError(b, err)
		transfers[i] = statebuffer.Transfer{Layout: l, Chunks: []statebuffer.Block{chunk}, Initial: chunk.At(0, bytes), Tensor: tensor, Lanes: lanes}
	}
	taken := make([]int32, sequences) // the slot of each sequence
	for q := range taken {
		taken[q] = int32(q)
	}
	free := make([]int32, 0, lanes) // slots that are free
	for slot := sequences; slot < slots; slot++ {
		free = append(free, int32(slot))
	}
	from, to := make([]statebuffer.Slot, lanes), make([]statebuffer.Slot, lanes)
	sent := int64(0)
	move := func(list []statebuffer.Slot, gather bool) {
		for i := range transfers {
			transfers[i].Slots = list
		}
		if err := do(transfers, gather); err != nil {
			b.Fatal(err)
		}
		for i := range m.lists {
			sent = max(sent, m.lists[i].used)
		}
	}
	for step := 0; b.Loop(); step++ {
		for i := range from {
			q := (i*37 + step*101) % sequences
			from[i].Index = taken[q]
			if fresh {
				taken[q] = free[i]
			}
			to[i].Index = taken[q]
		}
		move(from, true)
		if !fresh {
			move(from, false)
			continue
		}
		move(to, false)
		for i := range from { // what was read is free when the step has succeeded
			free[i] = from[i].Index
		}
	}
	require.NoError(b, m.Sync())
	slices.Sort(free)
	require.Len(b, slices.Compact(append(free, taken...)), slots, "a slot has two owners")
	b.ReportMetric(float64(2*sent), "bytes-sent/step")
	b.ReportMetric(float64(slots-sequences), "spare-slots")
}
