package memorytest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/statebuffer"
)

// move is one random Transfer and what all its memory held before.
type move struct {
	statebuffer.Transfer
	chunks  [][]byte
	initial []byte
	tensor  []byte
}

// testMoves gathers and scatters random slots of random layouts and compares all
// memory with a naive copy, also what had to stay as it was.
func testMoves(_ *testing.T, b *bench) {
	for seed := range uint64(150) {
		rng := random(seed)
		moves := make([]move, 1+rng.IntN(3))
		for i := range moves {
			moves[i] = b.randomMove(rng)
		}
		b.checkMove(fmt.Sprintf("gather, seed %d", seed), b.memory.Gather, moves, (*move).naiveGather)
		for i := range moves {
			moves[i].Slots = scatterSlots(rng, &moves[i])
		}
		b.checkMove(fmt.Sprintf("scatter, seed %d", seed), b.memory.Scatter, moves, (*move).naiveScatter)
		b.freeAll()
	}
}

func (b *bench) randomMove(rng *rand.Rand) move {
	m := move{}
	m.Layout = statebuffer.Layout{Pieces: 1 + rng.Int64N(4), PieceBytes: 1 + rng.Int64N(70)}
	if rng.IntN(4) == 0 {
		m.PieceBytes = 64 << rng.IntN(5) // sizes that wide copies can take
	}
	stored := m.StoredBytes()
	for range 1 + rng.IntN(3) {
		content := noise(rng, stored*(1+rng.Int64N(9)))
		m.chunks = append(m.chunks, content)
		m.Chunks = append(m.Chunks, b.filled(content))
	}
	m.initial = noise(rng, stored)
	m.Initial = b.filled(m.initial)
	m.Lanes = 1 + rng.IntN(9)
	m.Slots = make([]statebuffer.Slot, rng.IntN(m.Lanes+1))
	for i := range m.Slots {
		m.Slots[i] = m.anySlot(rng)
		if rng.IntN(3) == 0 {
			m.Slots[i] = statebuffer.InitialSlot
		}
	}
	m.tensor = noise(rng, int64(m.Lanes)*m.LaneBytes())
	m.Tensor = b.filled(m.tensor)
	return m
}

func (m *move) anySlot(rng *rand.Rand) statebuffer.Slot {
	chunk := rng.IntN(len(m.chunks))
	slots := len(m.chunks[chunk]) / int(m.StoredBytes())
	return statebuffer.Slot{Chunk: int32(chunk), Index: int32(rng.IntN(slots))}
}

// scatterSlots are destinations: no slot twice, and some lanes discarded.
func scatterSlots(rng *rand.Rand, m *move) []statebuffer.Slot {
	slots := make([]statebuffer.Slot, len(m.Slots))
	taken := map[statebuffer.Slot]bool{}
	for i := range slots {
		slots[i] = m.anySlot(rng)
		if taken[slots[i]] || rng.IntN(4) == 0 {
			slots[i] = statebuffer.NoSlot
		}
		taken[slots[i]] = true
	}
	return slots
}

// checkMove compares the moves in one call with naive ones, one by one.
func (b *bench) checkMove(name string, do func([]statebuffer.Transfer) error, moves []move, naive func(*move)) {
	b.t.Helper()
	transfers := make([]statebuffer.Transfer, len(moves))
	for i := range moves {
		transfers[i] = moves[i].Transfer
	}
	require.NoError(b.t, do(transfers), name)
	for i := range moves {
		m := &moves[i]
		naive(m)
		what := fmt.Sprintf("%s, transfer %d: %v, slots %v, %d lanes", name, i, m.Layout, m.Slots, m.Lanes)
		b.requireContent(m.Tensor, m.tensor, what+": tensor")
		b.requireContent(m.Initial, m.initial, what+": initial value")
		for k := range m.chunks {
			b.requireContent(m.Chunks[k], m.chunks[k], fmt.Sprintf("%s: chunk %d", what, k))
		}
	}
}

func (b *bench) requireContent(block statebuffer.Block, want []byte, what string) {
	b.t.Helper()
	if got := b.read(block); !bytes.Equal(got, want) {
		require.Equal(b.t, want, got, what)
	}
}

// naiveGather reads the documentation of Layout literally, byte by byte.
func (m *move) naiveGather() {
	for lane := range m.Lanes {
		slot := m.initial
		if lane < len(m.Slots) && m.Slots[lane] != statebuffer.InitialSlot {
			slot = m.slot(m.Slots[lane])
		}
		m.eachByte(lane, func(inSlot, inTensor int64) { m.tensor[inTensor] = slot[inSlot] })
	}
}

func (m *move) naiveScatter() {
	for lane := range m.Slots {
		if m.Slots[lane] == statebuffer.NoSlot {
			continue
		}
		slot := m.slot(m.Slots[lane])
		m.eachByte(lane, func(inSlot, inTensor int64) { slot[inSlot] = m.tensor[inTensor] })
	}
}

func (m *move) slot(r statebuffer.Slot) []byte {
	return m.chunks[r.Chunk][int64(r.Index)*m.StoredBytes():]
}

func (m *move) eachByte(lane int, do func(inSlot, inTensor int64)) {
	for x := range m.Pieces {
		for k := range m.PieceBytes {
			do(x*m.PieceBytes+k, (x*int64(m.Lanes)+int64(lane))*m.PieceBytes+k)
		}
	}
}

// testMovesNothing: a step may have no states, no lanes with a slot, or states of
// no bytes.
func testMovesNothing(t *testing.T, b *bench) {
	require.NoError(t, b.memory.Gather(nil))
	require.NoError(t, b.memory.Scatter(nil))
	empty := []statebuffer.Transfer{{
		Layout: statebuffer.Layout{Pieces: 1, PieceBytes: 0},
		Chunks: []statebuffer.Block{b.alloc(0)}, Initial: b.alloc(0), Tensor: b.alloc(0),
		Slots: []statebuffer.Slot{{}, {Index: 3}}, Lanes: 4,
	}}
	require.NoError(t, b.memory.Gather(empty))
	require.NoError(t, b.memory.Scatter(empty))
}
