package ortrunner

// #include "shim.h"
import "C"

import (
	"slices"
	"unsafe"

	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// maxValues is how many values a tensor keeps. A batched tensor has one per
// batch size, and as many again for each place that it moves to.
const maxValues = 64

// value is an OrtValue over borrowed memory. ONNX Runtime only stores the
// address, so that a value outlives the block it was made for without harm.
type value struct {
	c     *C.OrtValue
	key   uint64
	addr  uint64
	size  int64
	shape tensor.Shape
}

func (v *value) is(b statebuffer.Block, shape tensor.Shape) bool {
	return v.addr == b.Addr && v.size == b.Size && slices.Equal(v.shape, shape)
}

// valueCache keeps the values of one tensor of a model by address and shape, the
// latest maxValues of them. Its zero value is ready.
type valueCache struct {
	last  *value // the one found last: mostly it is asked for again
	byKey map[uint64]*value
	order []*value // in the order in which they were made, from oldest on, round
	next  int      // the oldest of order, once that is full
}

// find is the value over that block, or nil.
func (c *valueCache) find(b statebuffer.Block, shape tensor.Shape) *value {
	if c.last != nil && c.last.is(b, shape) {
		return c.last
	}
	if v := c.byKey[valueKey(b.Addr, shape)]; v != nil && v.is(b, shape) {
		c.last = v
		return v
	}
	return nil
}

// add makes a value over a block. The oldest value gives way when there are too
// many, and so does one of the same key.
func (c *valueCache) add(b statebuffer.Block, shape tensor.Shape, t elementType) (*value, error) {
	key := valueKey(b.Addr, shape)
	v := c.take(key)
	err := statusError(C.ortx_wrap(C.uintptr_t(b.Addr), C.size_t(b.Size), dimsOf(shape),
		C.size_t(len(shape)), C.uint(t), &v.c))
	if err != nil {
		return nil, err // v stays in order, with no OrtValue and no key, to be taken again
	}
	v.key, v.addr, v.size, v.shape = key, b.Addr, b.Size, append(v.shape[:0], shape...)
	c.byKey[key] = v
	c.last = v
	return v, nil
}

// take is the value to be made over: one of that key, a new one, or the oldest.
// The cache no longer finds it.
func (c *valueCache) take(key uint64) *value {
	if c.byKey == nil {
		c.byKey = make(map[uint64]*value)
	}
	c.last = nil
	if v := c.byKey[key]; v != nil {
		delete(c.byKey, key)
		return v
	}
	if len(c.order) < maxValues {
		v := new(value)
		c.order = append(c.order, v)
		return v
	}
	v := c.order[c.next]
	c.next = (c.next + 1) % maxValues
	if c.byKey[v.key] == v {
		delete(c.byKey, v.key)
	}
	return v
}

// close releases every value.
func (c *valueCache) close() {
	for _, v := range c.order {
		C.ortx_release_value(v.c)
	}
	*c = valueCache{}
}

// valueKey mixes address and shape into one number; FNV-1a over words, and the
// high half folded down.
func valueKey(addr uint64, shape tensor.Shape) uint64 {
	const prime = 1099511628211
	key := (14695981039346656037 ^ addr) * prime
	for _, extent := range shape {
		key = (key ^ uint64(extent)) * prime
	}
	return key ^ key>>32
}

// dimsOf is the extents as C wants them; NULL for a scalar. C reads them during
// the call only.
func dimsOf(shape tensor.Shape) *C.int64_t {
	return (*C.int64_t)(unsafe.SliceData(shape))
}
