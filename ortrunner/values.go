package ortrunner

// #include "shim.h"
import "C"

import (
	"slices"
	"unsafe"

	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// maxValues is how many values a tensor caches. A batched tensor has one for each
// batch size and each address.
const maxValues = 64

// value is an OrtValue over borrowed memory. ONNX Runtime only stores the
// address, so that a value outlives the block it was made for without harm.
type value struct {
	c     *C.OrtValue // nil where none could be made
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
	values []value
	keys   []uint64 // of the values: few enough to be searched one by one
	last   int      // the value found last: usually the next one wanted
	oldest int      // the one to be replaced when all are used
}

// find returns the value over a block, or nil.
func (c *valueCache) find(b statebuffer.Block, shape tensor.Shape) *C.OrtValue {
	if c.last < len(c.values) && c.values[c.last].is(b, shape) {
		return c.values[c.last].c
	}
	key := valueKey(b.Addr, shape)
	for i := range c.keys {
		if c.keys[i] == key && c.values[i].is(b, shape) {
			c.last = i
			return c.values[i].c
		}
	}
	return nil
}

// add makes a value over a block that has none, in the memory that where names; nil
// is host memory. It replaces the oldest value if there are maxValues.
func (c *valueCache) add(where *C.OrtMemoryInfo, b statebuffer.Block, shape tensor.Shape, t elementType) (*C.OrtValue, error) {
	c.last = c.room()
	v := &c.values[c.last]
	c.keys[c.last] = valueKey(b.Addr, shape)
	v.addr, v.size, v.shape = b.Addr, b.Size, append(v.shape[:0], shape...)
	err := statusError(C.ortx_wrap(where, C.uintptr_t(b.Addr), C.size_t(b.Size), dimsOf(shape),
		C.size_t(len(shape)), C.uint(t), &v.c))
	return v.c, err
}

// room returns the index of a new value, or of the oldest.
func (c *valueCache) room() int {
	if len(c.values) < maxValues {
		c.values = append(c.values, value{})
		c.keys = append(c.keys, 0)
		return len(c.values) - 1
	}
	index := c.oldest
	c.oldest = (c.oldest + 1) % maxValues
	return index
}

// close releases every value.
func (c *valueCache) close() {
	for i := range c.values {
		C.ortx_release_value(c.values[i].c)
	}
	*c = valueCache{}
}

// valueKey mixes address and shape into one number: FNV-1a over words.
func valueKey(addr uint64, shape tensor.Shape) uint64 {
	const prime = 1099511628211
	key := (14695981039346656037 ^ addr) * prime
	for _, extent := range shape {
		key = (key ^ uint64(extent)) * prime
	}
	return key
}

// dimsOf returns the extents for C, NULL for a scalar. C reads them only during the
// call.
func dimsOf(shape tensor.Shape) *C.int64_t {
	return (*C.int64_t)(unsafe.SliceData(shape))
}
