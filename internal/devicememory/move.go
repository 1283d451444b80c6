package devicememory

import (
	"errors"

	"tritonstateful/internal/cuda"
	"tritonstateful/statebuffer"
)

const (
	threads = 256
	// unitsPerThread is how much of a slot a thread moves at least, if there is
	// that much, so that fewer blocks are started.
	unitsPerThread = 4
	// maxGrid is the limit of CUDA for the second and third extent of a grid.
	maxGrid = 65535
	// maxParts limits the grid of a huge state; a thread then moves more.
	maxParts = 4096
)

// Gather implements statebuffer.Memory.
func (m *Memory) Gather(transfers []statebuffer.Transfer) error { return m.move(transfers, true) }

// Scatter implements statebuffer.Memory. Sync updates the counters of clamped
// elements; otherwise they lag by a few steps.
func (m *Memory) Scatter(transfers []statebuffer.Transfer) error { return m.move(transfers, false) }

// move launches the work, or falls back to copies.
func (m *Memory) move(transfers []statebuffer.Transfer, gather bool) error {
	if err := m.flush(); err != nil {
		return err
	}
	if len(transfers) == 0 {
		return nil
	}
	if m.degraded != nil || len(transfers) > maxGrid {
		return m.copies(transfers, gather)
	}
	p := m.nextList()
	err := p.write(transfers, gather)
	if errors.Is(err, errTooLarge) {
		p.counts = false
		return m.copies(transfers, gather)
	}
	if err != nil {
		return err
	}
	return m.launch(p, gather)
}

// nextList returns the list with the oldest launch.
func (m *Memory) nextList() *moveList {
	p := &m.lists[m.next]
	m.next = (m.next + 1) % launchesInFlight
	return p
}

func (m *Memory) launch(p *moveList, gather bool) error {
	grid := gridOf(p.moves, gather)
	if grid.X*grid.Y == 0 {
		p.counts = false
		return nil
	}
	if err := m.stream.CopyIn(p.device, p.host[:p.used]); err != nil {
		return err
	}
	kernel := m.scatter
	if gather {
		kernel = m.gather
	}
	if err := m.stream.Launch(kernel, grid, threads, p.device); err != nil {
		return err
	}
	if p.counts {
		if err := m.stream.CopyOut(p.host[:int64(len(p.moves))*moveBytes], p.device); err != nil {
			return err
		}
	}
	return p.launched()
}

// gridOf is large enough for the largest of the moves; blocks that have nothing
// to do end at once.
func gridOf(moves []move, gather bool) cuda.Grid {
	grid := cuda.Grid{Z: len(moves)}
	for i := range moves {
		mv := &moves[i]
		lanes := int(mv.given)
		if gather {
			lanes = int(mv.lanes)
		}
		units := int(mv.pieceBytes) * int(mv.pieces) / int(mv.unit)
		if units == 0 {
			continue
		}
		grid.Y = max(grid.Y, lanes)
		grid.X = max(grid.X, min((units+threads*unitsPerThread-1)/(threads*unitsPerThread), maxParts))
	}
	return grid
}
