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

// testMoves gathers and scatters random rows of random layouts and compares all
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
			moves[i].Rows = scatterRows(rng, &moves[i])
		}
		b.checkMove(fmt.Sprintf("scatter, seed %d", seed), b.memory.Scatter, moves, (*move).naiveScatter)
		b.freeAll()
	}
}

func (b *bench) randomMove(rng *rand.Rand) move {
	m := move{}
	m.Layout = statebuffer.Layout{Runs: 1 + rng.Int64N(4), RunBytes: 1 + rng.Int64N(70)}
	if rng.IntN(4) == 0 {
		m.RunBytes = 64 << rng.IntN(5) // what wide copies like
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
	m.Rows = make([]statebuffer.Row, rng.IntN(m.Lanes+1))
	for i := range m.Rows {
		m.Rows[i] = m.anyRow(rng)
		if rng.IntN(3) == 0 {
			m.Rows[i] = statebuffer.InitRow
		}
	}
	m.tensor = noise(rng, int64(m.Lanes)*m.RowBytes())
	m.Tensor = b.filled(m.tensor)
	return m
}

func (m *move) anyRow(rng *rand.Rand) statebuffer.Row {
	chunk := rng.IntN(len(m.chunks))
	rows := len(m.chunks[chunk]) / int(m.StoredBytes())
	return statebuffer.Row{Chunk: int32(chunk), Index: int32(rng.IntN(rows))}
}

// scatterRows are destinations: no row twice, and some lanes discarded.
func scatterRows(rng *rand.Rand, m *move) []statebuffer.Row {
	rows := make([]statebuffer.Row, len(m.Rows))
	taken := map[statebuffer.Row]bool{}
	for i := range rows {
		rows[i] = m.anyRow(rng)
		if taken[rows[i]] || rng.IntN(4) == 0 {
			rows[i] = statebuffer.NoRow
		}
		taken[rows[i]] = true
	}
	return rows
}

// checkMove does the moves in one call, and naively one by one.
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
		what := fmt.Sprintf("%s, transfer %d: %v, rows %v, %d lanes", name, i, m.Layout, m.Rows, m.Lanes)
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
		row := m.initial
		if lane < len(m.Rows) && m.Rows[lane] != statebuffer.InitRow {
			row = m.row(m.Rows[lane])
		}
		m.eachByte(lane, func(inRow, inTensor int64) { m.tensor[inTensor] = row[inRow] })
	}
}

func (m *move) naiveScatter() {
	for lane := range m.Rows {
		if m.Rows[lane] == statebuffer.NoRow {
			continue
		}
		row := m.row(m.Rows[lane])
		m.eachByte(lane, func(inRow, inTensor int64) { row[inRow] = m.tensor[inTensor] })
	}
}

func (m *move) row(r statebuffer.Row) []byte {
	return m.chunks[r.Chunk][int64(r.Index)*m.StoredBytes():]
}

func (m *move) eachByte(lane int, visit func(inRow, inTensor int64)) {
	for x := range m.Runs {
		for k := range m.RunBytes {
			visit(x*m.RunBytes+k, (x*int64(m.Lanes)+int64(lane))*m.RunBytes+k)
		}
	}
}

// testMovesNothing: a step may have no states, no lanes with a row, or states of
// no bytes.
func testMovesNothing(t *testing.T, b *bench) {
	require.NoError(t, b.memory.Gather(nil))
	require.NoError(t, b.memory.Scatter(nil))
	empty := []statebuffer.Transfer{{
		Layout: statebuffer.Layout{Runs: 1, RunBytes: 0},
		Chunks: []statebuffer.Block{b.alloc(0)}, Initial: b.alloc(0), Tensor: b.alloc(0),
		Rows: []statebuffer.Row{{}, {Index: 3}}, Lanes: 4,
	}}
	require.NoError(t, b.memory.Gather(empty))
	require.NoError(t, b.memory.Scatter(empty))
}
