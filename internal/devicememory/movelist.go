package devicememory

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"tritonstateful/internal/cuda"
	"tritonstateful/statebuffer"
)

// launchesInFlight is how many launches may be under way: a step has three, one of which
// clears, and the host can be one step ahead.
const launchesInFlight = 6

// move is the struct of the same name in move.h.
type move struct {
	tensor, initial, chunks, slots   uint64
	pieceBytes, slotBytes            uint64
	clamped                          uint64
	pieces, lanes, given, unit, half uint32
	_                                uint32
}

const (
	moveBytes  = int64(unsafe.Sizeof(move{}))
	entryBytes = int64(unsafe.Sizeof(statebuffer.Slot{}))
)

// moveList is what one launch is to do, on host and device: an array of moves, followed by
// the tables that they point to. It is reused once the launch is done.
type moveList struct {
	context  *cuda.Context
	stream   *cuda.Stream
	done     *cuda.Event
	inFlight bool   // it was launched, and nothing has waited for it or later work
	host     []byte // pinned
	device   uint64
	moves    []move
	used     int64 // bytes of host that are in use
	// counters are those of the moves; nil where nothing is counted.
	counters []*uint64
	counts   bool
}

func (p *moveList) open(context *cuda.Context, stream *cuda.Stream) (err error) {
	p.context, p.stream = context, stream
	p.done, err = context.NewEvent()
	return err
}

func (p *moveList) close() error {
	if p.done == nil {
		return nil
	}
	return errors.Join(p.done.Destroy(), p.free())
}

func (p *moveList) free() (err error) {
	if p.host != nil {
		err = errors.Join(p.context.HostFree(p.host), p.context.Free(p.device))
	}
	p.host, p.device = nil, 0
	return err
}

// reserve waits until the list is free, and makes room for bytes.
func (p *moveList) reserve(bytes int64) error {
	if p.inFlight {
		if err := p.done.Sync(); err != nil {
			return err
		}
		p.inFlight = false
	}
	p.collect()
	if int64(len(p.host)) >= bytes {
		return nil
	}
	// The driver waits for all work before it frees memory; this is rare.
	if err := errors.Join(p.stream.Sync(), p.free()); err != nil {
		return err
	}
	bytes = statebuffer.Capacity(bytes)
	host, err := p.context.HostAlloc(bytes)
	if err != nil {
		return err
	}
	p.device, err = p.context.Alloc(bytes)
	if err != nil {
		return errors.Join(err, p.context.HostFree(host))
	}
	p.host = host
	return nil
}

// launched notes that the launch is in the stream.
func (p *moveList) launched() error {
	p.inFlight = true
	return p.done.Record(p.stream)
}

// collect adds the counts of the last launch, once.
func (p *moveList) collect() {
	for i, counter := range p.counters {
		if p.counts && counter != nil {
			*counter += p.moves[i].clamped
		}
	}
	p.counts = false
}

// errTooLarge reports that a transfer exceeds the kernels' integers.
var errTooLarge = errors.New("a state is too large for the kernels")

// write makes the list of the transfers, of a gather or a scatter.
func (p *moveList) write(transfers []statebuffer.Transfer, gather bool) error {
	size := int64(len(transfers)) * moveBytes
	for i := range transfers {
		size += int64(len(transfers[i].Chunks))*8 + int64(len(transfers[i].Slots))*entryBytes
	}
	if err := p.reserve(size); err != nil {
		return fmt.Errorf("a list of moves of %d bytes: %w", size, err)
	}
	p.moves = unsafe.Slice((*move)(unsafe.Pointer(unsafe.SliceData(p.host))), len(transfers))
	p.used, p.counters = int64(len(transfers))*moveBytes, p.counters[:0]
	for i := range transfers {
		t := &transfers[i]
		m := &p.moves[i]
		if err := describe(m, t, gather); err != nil {
			return err
		}
		m.chunks = p.chunkTable(t.Chunks)
		if i > 0 && sameSlots(t.Slots, transfers[i-1].Slots) {
			m.slots = p.moves[i-1].slots
		} else {
			m.slots = p.slotTable(t.Slots)
		}
		p.counters = append(p.counters, t.Saturated)
		p.counts = p.counts || t.Saturated != nil && !gather && t.Convert == statebuffer.Half
	}
	return nil
}

// describe fills in a move except for its tables. The kernels check nothing, so it
// is done here.
func describe(m *move, t *statebuffer.Transfer, gather bool) error {
	stored := t.StoredBytes()
	if t.Pieces < 0 || t.PieceBytes < 0 || len(t.Slots) > t.Lanes || int64(t.Lanes)*t.LaneBytes() > t.Tensor.Size {
		return fmt.Errorf("%d pieces of %d bytes for %d of %d lanes do not fit a tensor of %d bytes", t.Pieces, t.PieceBytes, len(t.Slots), t.Lanes, t.Tensor.Size)
	}
	if t.Pieces > math.MaxInt32 || t.LaneBytes() > math.MaxInt32 || t.Lanes > maxGrid {
		return errTooLarge
	}
	for lane, slot := range t.Slots {
		if slot.Chunk < 0 {
			continue
		}
		if int(slot.Chunk) >= len(t.Chunks) || slot.Index < 0 || (int64(slot.Index)+1)*stored > t.Chunks[slot.Chunk].Size {
			return fmt.Errorf("lane %d: no chunk holds slot %v of %d bytes", lane, slot, stored)
		}
	}
	*m = move{
		tensor: t.Tensor.Addr, pieceBytes: uint64(t.PieceBytes), slotBytes: uint64(stored),
		pieces: uint32(t.Pieces), lanes: uint32(t.Lanes), given: uint32(len(t.Slots)),
	}
	if gather {
		m.initial = t.Initial.Addr
	}
	store := m.initial | m.slotBytes
	for i := range t.Chunks {
		store |= t.Chunks[i].Addr
	}
	m.unit, m.half = accessUnit(m.tensor|m.pieceBytes, store, t.Convert)
	return nil
}

// accessUnit returns the widest access, in bytes of the tensor, that divides all
// addresses and sizes, which are or-ed together in tensor and store.
func accessUnit(tensor, store uint64, c statebuffer.Conversion) (unit, half uint32) {
	if c == statebuffer.Half {
		if tensor%16 == 0 && store%8 == 0 {
			return 16, 1
		}
		return 4, 1
	}
	bits := tensor | store | 16
	return uint32(bits & -bits), 0
}

func sameSlots(a, b []statebuffer.Slot) bool {
	return len(a) == len(b) && unsafe.SliceData(a) == unsafe.SliceData(b)
}

// chunkTable appends the addresses of chunks to the list, and returns where they
// are on the device.
func (p *moveList) chunkTable(chunks []statebuffer.Block) uint64 {
	at := p.used
	p.used += int64(len(chunks)) * 8
	if len(chunks) > 0 {
		table := unsafe.Slice((*uint64)(unsafe.Pointer(&p.host[at])), len(chunks))
		for i := range chunks {
			table[i] = chunks[i].Addr
		}
	}
	return p.device + uint64(at)
}

// slotTable does so with slots.
func (p *moveList) slotTable(slots []statebuffer.Slot) uint64 {
	at := p.used
	p.used += int64(len(slots)) * entryBytes
	if len(slots) > 0 {
		copy(unsafe.Slice((*statebuffer.Slot)(unsafe.Pointer(&p.host[at])), len(slots)), slots)
	}
	return p.device + uint64(at)
}
