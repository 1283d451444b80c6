package devicememory

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/statebuffer"
)

// TestMoveListBytes: what the host sends to the device for a step, and what of it is owed to
// each state's having chunks of its own. One piece of memory for all states of a
// sequence would do with one table of chunks.
func TestMoveListBytes(t *testing.T) {
	const states, lanes = 97, 32
	m := newMemory(t, device(t))
	chunks := make([]statebuffer.Block, states)
	tensors := make([]statebuffer.Block, states)
	slots := make([]statebuffer.Slot, lanes)
	for i := range slots {
		slots[i].Index = int32(i)
	}
	var transfers []statebuffer.Transfer
	for i := range chunks {
		var err error
		chunks[i], err = m.Alloc(lanes * 64)
		require.NoError(t, err)
		tensors[i], err = m.Alloc(lanes * 64)
		require.NoError(t, err)
		defer m.Free(chunks[i])
		defer m.Free(tensors[i])
		transfers = append(transfers, statebuffer.Transfer{
			Layout: statebuffer.Layout{Pieces: 1, PieceBytes: 64}, Chunks: chunks[i : i+1], Slots: slots, Tensor: tensors[i], Lanes: lanes,
		})
	}
	p := m.nextList()
	require.NoError(t, p.write(transfers, true))
	tables := int64(states) * 8
	require.EqualValues(t, states*moveBytes+tables+lanes*entryBytes, p.used)
	require.EqualValues(t, 8792, p.used)
	require.EqualValues(t, 768, tables-8, "more than with one piece of memory")
}
