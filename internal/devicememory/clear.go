package devicememory

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"tritonstateful/internal/cuda"
	"tritonstateful/statebuffer"
)

// span is the struct of the same name in move.h.
type span struct{ address, bytes uint64 }

const spanBytes = int64(unsafe.Sizeof(span{}))

// Clear implements statebuffer.Memory. A sequence that ends leaves a slot of each
// state; one launch clears all slots that the sequences of a batch leave, when the
// stream gets its next work.
func (m *Memory) Clear(blocks []statebuffer.Block) {
	for i := range blocks {
		if blocks[i].Size > 0 {
			m.dirty = append(m.dirty, span{blocks[i].Addr, uint64(blocks[i].Size)})
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
		return fmt.Errorf("clearing states of ended sequences: %w", err)
	}
	return nil
}

func largestOf(spans []span) (largest uint64) {
	for i := range spans {
		largest = max(largest, spans[i].bytes)
	}
	return largest
}

// clearAll clears all spans by one launch.
func (m *Memory) clearAll(spans []span, largest uint64) error {
	p := m.nextList()
	if err := p.reserve(int64(len(spans)) * spanBytes); err != nil {
		return err
	}
	p.used = int64(len(spans)) * spanBytes
	p.counters = p.counters[:0]
	copy(unsafe.Slice((*span)(unsafe.Pointer(unsafe.SliceData(p.host))), len(spans)), spans)
	const perBlock = threads * unitsPerThread * 16
	grid := cuda.Grid{X: int(min((largest+perBlock-1)/perBlock, maxParts)), Y: len(spans), Z: 1}
	return errors.Join(m.stream.CopyIn(p.device, p.host[:p.used]), m.stream.Launch(m.wipe, grid, threads, p.device), p.launched())
}

// clearEach is for a driver without the kernels, and for spans that exceed their
// integers.
func (m *Memory) clearEach(spans []span) error {
	for i := range spans {
		if err := m.stream.Set(spans[i].address, 0, int64(spans[i].bytes)); err != nil {
			return err
		}
	}
	return nil
}
