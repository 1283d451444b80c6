package devicememory

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"tritonstateful/internal/cuda"
	"tritonstateful/statebuffer"
)

// area is the struct of the same name in move.h.
type area struct{ address, bytes uint64 }

const areaBytes = int64(unsafe.Sizeof(area{}))

// Clear implements statebuffer.Memory. A sequence that ends leaves a row of each
// state; all rows that the sequences of a batch leave are cleared by one launch,
// when the stream gets its next work.
func (m *Memory) Clear(blocks []statebuffer.Block) {
	for i := range blocks {
		if blocks[i].Size > 0 {
			m.dirty = append(m.dirty, area{blocks[i].Addr, uint64(blocks[i].Size)})
		}
	}
}

// flush clears what is dirty.
func (m *Memory) flush() (err error) {
	for rest := m.dirty; len(rest) > 0 && err == nil; {
		some := rest[:min(len(rest), maxGrid)]
		if largest := largestOf(some); m.degraded == nil && largest <= math.MaxInt32 {
			err = m.clearAll(some, largest)
		} else {
			err = m.clearEach(some)
		}
		rest = rest[len(some):]
	}
	m.dirty = m.dirty[:0]
	if err != nil {
		return fmt.Errorf("overwriting states that have ended: %w", err)
	}
	return nil
}

func largestOf(areas []area) (largest uint64) {
	for i := range areas {
		largest = max(largest, areas[i].bytes)
	}
	return largest
}

// clearAll does it by one launch.
func (m *Memory) clearAll(areas []area, largest uint64) error {
	p := m.nextPlan()
	if err := p.reserve(int64(len(areas)) * areaBytes); err != nil {
		return err
	}
	p.used = int64(len(areas)) * areaBytes
	p.counters = p.counters[:0]
	copy(unsafe.Slice((*area)(unsafe.Pointer(unsafe.SliceData(p.host))), len(areas)), areas)
	const perBlock = threads * unitsPerThread * 16
	grid := cuda.Grid{X: int(min((largest+perBlock-1)/perBlock, maxParts)), Y: len(areas), Z: 1}
	return errors.Join(m.stream.CopyIn(p.device, p.host[:p.used]), m.stream.Launch(m.wipe, grid, threads, p.device), p.launched())
}

// clearEach is for a driver without the kernels, and for areas that are too large
// for their numbers.
func (m *Memory) clearEach(areas []area) error {
	for i := range areas {
		if err := m.stream.Set(areas[i].address, 0, int64(areas[i].bytes)); err != nil {
			return err
		}
	}
	return nil
}
