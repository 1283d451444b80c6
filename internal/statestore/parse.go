package statestore

import (
	"errors"
	"fmt"
	"math"
	"time"

	"tritonstateful/internal/tensor"
)

// A Record is what a value says.
type Record struct {
	Head
	Counters []uint64
	Tensors  []RecordTensor
}

// A RecordTensor is a tensor and its data, which are part of the value.
type RecordTensor struct {
	Tensor
	Data []byte
}

// Parse reads a value that a Writer laid out. Any other one is an error that says what
// is wrong: unknown formats, damaged values, tables that do not fit. The value must not
// change as long as the Record is used.
func Parse(value []byte) (*Record, error) {
	head, err := parseHead(value)
	if err != nil {
		return nil, fmt.Errorf("read a saved state of %d bytes: %w", len(value), err)
	}
	record, err := parseTable(value)
	if err != nil {
		return nil, fmt.Errorf("read a saved state of %d bytes: its table: %w", len(value), err)
	}
	record.Head = head
	return record, nil
}

// A FormatError says that a value is of a format that this version does not read: another version saved it.
type FormatError struct{ Format uint16 }

func (e *FormatError) Error() string {
	return fmt.Sprintf("it has format %d: this version reads %d", e.Format, Format)
}

func parseHead(value []byte) (head Head, err error) {
	if len(value) < headSize {
		return head, fmt.Errorf("it has no head, which is %d bytes", headSize)
	}
	if string(value[:4]) != magic {
		return head, fmt.Errorf("it begins with %q: want %q", value[:4], magic)
	}
	if format := little.Uint16(value[4:]); format != Format {
		return head, &FormatError{format}
	}
	if length := little.Uint64(value[lengthAt:]); length != uint64(len(value)-headSize) {
		return head, fmt.Errorf("its head says that %d bytes follow: there are %d", length, len(value)-headSize)
	}
	if saved, now := little.Uint32(value[crcAt:]), checksum(value); saved != now {
		return head, fmt.Errorf("it is damaged: its checksum is %08x, and that of its bytes %08x", saved, now)
	}
	if flags, reserved := little.Uint16(value[6:]), little.Uint32(value[reservedAt:]); flags != 0 || reserved != 0 {
		return head, fmt.Errorf("it has flags that are not of format %d: %#x, %#x", Format, flags, reserved)
	}
	head.Epoch = little.Uint64(value[8:])
	head.Step = little.Uint64(value[stepAt:])
	head.Saved = time.Unix(0, int64(little.Uint64(value[24:])))
	copy(head.Model[:], value[32:])
	copy(head.Layout[:], value[40:])
	return head, nil
}

// table is the part of the table that is not yet read.
type table struct{ rest []byte }

var errTableEnds = errors.New("it has no end")

// next returns the next n bytes.
func (t *table) next(n int) ([]byte, error) {
	if n > len(t.rest) {
		return nil, errTableEnds
	}
	next := t.rest[:n]
	t.rest = t.rest[n:]
	return next, nil
}

func parseTable(value []byte) (*Record, error) {
	t := table{value[headSize:]}
	counts, err := t.next(8)
	if err != nil {
		return nil, err
	}
	counters, tensors := little.Uint32(counts), little.Uint32(counts[4:])
	// Nothing is allocated for a number before it is known that as much follows.
	if uint64(len(t.rest)) < 8*uint64(counters)+entrySize*uint64(tensors) {
		return nil, fmt.Errorf("%d counters and %d tensors do not fit", counters, tensors)
	}
	record := &Record{Counters: make([]uint64, counters), Tensors: make([]RecordTensor, tensors)}
	for i := range record.Counters {
		counter, _ := t.next(8)
		record.Counters[i] = little.Uint64(counter)
	}
	places := make([]place, tensors)
	for i := range record.Tensors {
		if places[i], err = t.entry(&record.Tensors[i].Tensor); err != nil {
			return nil, fmt.Errorf("tensor %d: %w", i, err)
		}
	}
	end := uint64(len(value) - len(t.rest))
	for i := range record.Tensors {
		data, err := places[i].in(value, end)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", record.Tensors[i].Name, err)
		}
		record.Tensors[i].Data = data
		end = places[i].offset + places[i].size
	}
	if end != uint64(len(value)) {
		return nil, fmt.Errorf("%d bytes belong to no tensor", uint64(len(value))-end)
	}
	return record, nil
}

// entry reads the entry of one tensor.
func (t *table) entry(to *Tensor) (place, error) {
	before := len(t.rest)
	fixed, err := t.next(entrySize)
	if err != nil {
		return place{}, err
	}
	where := place{little.Uint64(fixed), little.Uint64(fixed[8:])}
	name, dtype, axes := int(little.Uint16(fixed[16:])), int(little.Uint16(fixed[18:])), little.Uint32(fixed[20:])
	if uint64(len(t.rest)) < 8*uint64(axes)+uint64(name)+uint64(dtype) {
		return place{}, errTableEnds
	}
	to.Shape = make(tensor.Shape, axes)
	for axis := range to.Shape {
		extent, _ := t.next(8)
		to.Shape[axis] = int64(little.Uint64(extent))
	}
	names, _ := t.next(name + dtype)
	to.Name = string(names[:name])
	if to.DType, err = tensor.ParseDType(string(names[name:])); err != nil {
		return place{}, err
	}
	if to.DType.String() != string(names[name:]) {
		return place{}, fmt.Errorf("its type is called %q: want %q", names[name:], to.DType)
	}
	want, err := to.Shape.Bytes(to.DType)
	if err != nil {
		return place{}, err
	}
	if uint64(want) != where.size {
		return place{}, fmt.Errorf("it has %d bytes: shape %v of %v has %d", where.size, to.Shape, to.DType, want)
	}
	used := int64(before - len(t.rest))
	_, err = t.next(int(align(used, 8) - used))
	return where, err
}

// A place is where the data of a tensor are in the value.
type place struct{ offset, size uint64 }

// in returns the data if they are where a Writer puts them: at the first multiple of
// the alignment after end, which is not after the value's end.
func (p place) in(value []byte, end uint64) ([]byte, error) {
	if want := uint64(align(int64(end), alignment)); p.offset != want {
		return nil, fmt.Errorf("its data begin at %d: want %d", p.offset, want)
	}
	if p.size > math.MaxInt64-p.offset || p.offset+p.size > uint64(len(value)) {
		return nil, fmt.Errorf("its %d bytes at %d do not fit", p.size, p.offset)
	}
	return value[p.offset : p.offset+p.size : p.offset+p.size], nil
}
