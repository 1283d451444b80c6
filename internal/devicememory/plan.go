package devicememory

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"tritonstateful/internal/cuda"
	"tritonstateful/statebuffer"
)

// plansInFlight is how many launches may be under way: a step has two, and one that
// clears; the host can be one step ahead.
const plansInFlight = 6

// move is the struct of the same name in move.h.
type move struct {
	tensor, initial, chunks, places uint64
	runBytes, rowBytes              uint64
	clamped                         uint64
	runs, lanes, given, unit, half  uint32
	_                               uint32
}

const (
	moveBytes  = int64(unsafe.Sizeof(move{}))
	placeBytes = int64(unsafe.Sizeof(statebuffer.Slot{}))
)

// plan is what one launch is to do, on both sides: an array of moves, followed by
// the tables that they point to. It is used again when the launch is done.
type plan struct {
	context *cuda.Context
	stream  *cuda.Stream
	done    *cuda.Event
	flying  bool   // it was launched, and nobody has waited for anything behind it
	host    []byte // pinned
	device  uint64
	moves   []move
	used    int64 // bytes of host that are in use
	// counters belong to the moves; nil where nobody counts.
	counters []*uint64
	counts   bool
}

func (p *plan) open(context *cuda.Context, stream *cuda.Stream) (err error) {
	p.context, p.stream = context, stream
	p.done, err = context.NewEvent()
	return err
}

func (p *plan) close() error {
	if p.done == nil {
		return nil
	}
	return errors.Join(p.done.Destroy(), p.free())
}

func (p *plan) free() (err error) {
	if p.host != nil {
		err = errors.Join(p.context.HostFree(p.host), p.context.Free(p.device))
	}
	p.host, p.device = nil, 0
	return err
}

// reserve waits until the plan is free and makes room.
func (p *plan) reserve(bytes int64) error {
	if p.flying {
		if err := p.done.Sync(); err != nil {
			return err
		}
		p.flying = false
	}
	p.collect()
	if int64(len(p.host)) >= bytes {
		return nil
	}
	// The driver would wait for everybody before it takes memory back; this is seldom.
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
func (p *plan) launched() error {
	p.flying = true
	return p.done.Record(p.stream)
}

// collect adds what the last launch has counted, once.
func (p *plan) collect() {
	for i, counter := range p.counters {
		if p.counts && counter != nil {
			*counter += p.moves[i].clamped
		}
	}
	p.counts = false
}

// tooLarge says that a movement is more than the kernels' numbers can hold.
var errTooLarge = errors.New("a state is too large for the kernels")

// write makes the plan of the transfers. gather tells which way.
func (p *plan) write(transfers []statebuffer.Transfer, gather bool) error {
	size := int64(len(transfers)) * moveBytes
	for i := range transfers {
		size += int64(len(transfers[i].Chunks))*8 + int64(len(transfers[i].Slots))*placeBytes
	}
	if err := p.reserve(size); err != nil {
		return fmt.Errorf("a plan of %d bytes: %w", size, err)
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
		if i > 0 && sameRows(t.Slots, transfers[i-1].Slots) {
			m.places = p.moves[i-1].places
		} else {
			m.places = p.placeTable(t.Slots)
		}
		p.counters = append(p.counters, t.Saturated)
		p.counts = p.counts || t.Saturated != nil && !gather && t.Convert == statebuffer.Half
	}
	return nil
}

// describe fills in a move, but for its tables. Nothing on the device checks
// anything, so it is done here.
func describe(m *move, t *statebuffer.Transfer, gather bool) error {
	stored := t.StoredBytes()
	if t.Pieces < 0 || t.PieceBytes < 0 || len(t.Slots) > t.Lanes || int64(t.Lanes)*t.LaneBytes() > t.Tensor.Size {
		return fmt.Errorf("%d runs of %d bytes for %d of %d lanes do not fit a tensor of %d bytes", t.Pieces, t.PieceBytes, len(t.Slots), t.Lanes, t.Tensor.Size)
	}
	if t.Pieces > math.MaxInt32 || t.LaneBytes() > math.MaxInt32 || t.Lanes > maxGrid {
		return errTooLarge
	}
	for lane, row := range t.Slots {
		if row.Chunk < 0 {
			continue
		}
		if int(row.Chunk) >= len(t.Chunks) || row.Index < 0 || (int64(row.Index)+1)*stored > t.Chunks[row.Chunk].Size {
			return fmt.Errorf("lane %d: no chunk holds row %v of %d bytes", lane, row, stored)
		}
	}
	*m = move{
		tensor: t.Tensor.Addr, runBytes: uint64(t.PieceBytes), rowBytes: uint64(stored),
		runs: uint32(t.Pieces), lanes: uint32(t.Lanes), given: uint32(len(t.Slots)),
	}
	if gather {
		m.initial = t.Initial.Addr
	}
	rows := m.initial | m.rowBytes
	for i := range t.Chunks {
		rows |= t.Chunks[i].Addr
	}
	m.unit, m.half = accessUnit(m.tensor|m.runBytes, rows, t.Convert)
	return nil
}

// accessUnit is the widest access, in bytes of the tensor, that divides
// everything: whatever an address or a size is made of has its bits set in these.
func accessUnit(tensor, rows uint64, c statebuffer.Conversion) (unit, half uint32) {
	if c == statebuffer.Half {
		if tensor%16 == 0 && rows%8 == 0 {
			return 16, 1
		}
		return 4, 1
	}
	bits := tensor | rows | 16
	return uint32(bits & -bits), 0
}

func sameRows(a, b []statebuffer.Slot) bool {
	return len(a) == len(b) && unsafe.SliceData(a) == unsafe.SliceData(b)
}

// chunkTable puts the addresses of chunks behind what the plan has, and tells
// where the device finds them.
func (p *plan) chunkTable(chunks []statebuffer.Block) uint64 {
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

func (p *plan) placeTable(rows []statebuffer.Slot) uint64 {
	at := p.used
	p.used += int64(len(rows)) * placeBytes
	if len(rows) > 0 {
		copy(unsafe.Slice((*statebuffer.Slot)(unsafe.Pointer(&p.host[at])), len(rows)), rows)
	}
	return p.device + uint64(at)
}
