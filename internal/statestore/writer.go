package statestore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"time"

	"tritonstateful/internal/tensor"
)

// Format is the number of the format of saved values.
const Format = 1

// The format; the package's comment describes it byte by byte.
const (
	magic      = "TSST"
	headSize   = 64
	stepAt     = 16
	lengthAt   = 48
	crcAt      = 56
	reservedAt = 60
	alignment  = 64
	entrySize  = 24 // of a tensor in the table, before its axes
)

var (
	little     = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// Head says whose state a value is.
type Head struct {
	Epoch  uint64    // of the owner that saved it
	Step   uint64    // number of steps done
	Saved  time.Time // when, to the nanosecond
	Model  [8]byte   // hash of the model
	Layout [8]byte   // hash of the names, types and shapes of its states
}

// Tensor describes the state of one sequence: its shape has the extent 1 at the batch
// axis. The type has elements of a fixed size.
type Tensor struct {
	Name  string
	DType tensor.DType
	Shape tensor.Shape
}

// A Writer lays out values. It can be used for one value after the other and keeps its
// memory. Its zero value is ready. One goroutine uses it at a time.
type Writer struct {
	value []byte
	data  [][]byte // of each tensor, in value
}

// Begin lays out a value with the given counters and tensors. What Tensor and Seal
// returned before is invalid. It fails if a tensor has no size, or a name that is too
// long.
func (w *Writer) Begin(counters []uint64, tensors []Tensor) error {
	size := int64(headSize) + 8 + 8*int64(len(counters))
	for i := range tensors {
		t := &tensors[i]
		if len(t.Name) > math.MaxUint16 {
			return fmt.Errorf("lay out a state to be saved: a tensor has a name of %d bytes: at most %d fit", len(t.Name), math.MaxUint16)
		}
		size += tableEntry(t)
	}
	table := size
	for i := range tensors {
		t := &tensors[i]
		bytes, err := t.Shape.Bytes(t.DType)
		if err == nil && bytes > math.MaxInt64-alignment-size {
			err = fmt.Errorf("the value has more bytes than 63 bits can count")
		}
		if err != nil {
			return fmt.Errorf("lay out a state to be saved: tensor %q: %w", t.Name, err)
		}
		size = align(size, alignment) + bytes
	}
	w.value = slices.Grow(w.value[:0], int(size))[:size]
	w.data = slices.Grow(w.data[:0], len(tensors))
	clear(w.value[:table])
	w.putTable(counters, tensors, table)
	return nil
}

// putTable writes the table, and zeros between the tensors; end is the table's end.
func (w *Writer) putTable(counters []uint64, tensors []Tensor, end int64) {
	at := w.value[headSize:]
	little.PutUint32(at, uint32(len(counters)))
	little.PutUint32(at[4:], uint32(len(tensors)))
	at = at[8:]
	for _, n := range counters {
		little.PutUint64(at, n)
		at = at[8:]
	}
	for i := range tensors {
		t := &tensors[i]
		dtype := t.DType.String()
		offset := align(end, alignment)
		clear(w.value[end:offset])
		bytes, _ := t.Shape.Bytes(t.DType) // Begin has checked it
		end = offset + bytes
		w.data = append(w.data, w.value[offset:end:end])
		little.PutUint64(at, uint64(offset))
		little.PutUint64(at[8:], uint64(bytes))
		little.PutUint16(at[16:], uint16(len(t.Name)))
		little.PutUint16(at[18:], uint16(len(dtype)))
		little.PutUint32(at[20:], uint32(len(t.Shape)))
		for axis, extent := range t.Shape {
			little.PutUint64(at[entrySize+8*axis:], uint64(extent))
		}
		names := at[entrySize+8*len(t.Shape):]
		copy(names[copy(names, t.Name):], dtype)
		at = at[tableEntry(t):]
	}
}

// tableEntry returns how many bytes a tensor takes in the table.
func tableEntry(t *Tensor) int64 {
	return align(entrySize+8*int64(len(t.Shape))+int64(len(t.Name))+int64(len(t.DType.String())), 8)
}

// align rounds up to a multiple of to.
func align(n, to int64) int64 { return (n + to - 1) / to * to }

// Tensor returns the data of tensor i, to be filled before Seal. What it contains is
// undefined.
func (w *Writer) Tensor(i int) []byte { return w.data[i] }

// Seal completes the value and returns it. It is the Writer's, valid until the next
// Begin. A value may be sealed again with another head.
func (w *Writer) Seal(head Head) []byte {
	v := w.value
	copy(v, magic)
	little.PutUint16(v[4:], Format)
	little.PutUint16(v[6:], 0)
	little.PutUint64(v[8:], head.Epoch)
	little.PutUint64(v[stepAt:], head.Step)
	little.PutUint64(v[24:], uint64(head.Saved.UnixNano()))
	copy(v[32:], head.Model[:])
	copy(v[40:], head.Layout[:])
	little.PutUint64(v[lengthAt:], uint64(len(v)-headSize))
	little.PutUint32(v[reservedAt:], 0)
	little.PutUint32(v[crcAt:], checksum(v))
	return v
}

// stepOf is the number of steps that the head of a value says; 0 for what is no value.
func stepOf(value []byte) uint64 {
	if len(value) < stepAt+8 || string(value[:len(magic)]) != magic {
		return 0
	}
	return little.Uint64(value[stepAt:])
}

// checksum is that of a value whose bytes from crcAt to reservedAt do not count.
func checksum(value []byte) uint32 {
	return crc32.Update(crc32.Checksum(value[:crcAt], castagnoli), castagnoli, value[reservedAt:])
}
