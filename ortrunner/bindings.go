package ortrunner

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"slices"
	"unsafe"

	"tritonstateful/internal/onnx"
)

// maxBindings is how many bindings a session keeps, besides those of its warm-up:
// one for each set of addresses and shapes.
const maxBindings = 64

// binding is the arguments of a run, bound; and the number of its CUDA graph, or 0.
type binding struct {
	c     *C.ortx_binding
	key   []uint64
	graph int
}

// bindings are those of a session. Its zero value is ready.
type bindings struct {
	all       []binding
	permanent int // how many, at the front of all, are never replaced
	oldest    int // of the others, counted from permanent: the one to be replaced
	key       []uint64
}

// begin starts the description of a run; note adds a tensor to it.
func (b *bindings) begin() { b.key = b.key[:0] }

func (b *bindings) note(t *onnx.Tensor, address uint64) {
	b.key = append(b.key, address, uint64(t.Data.Size), uint64(len(t.Shape)))
	for _, extent := range t.Shape {
		b.key = append(b.key, uint64(extent))
	}
}

// find returns the binding for the run that was described, or nil.
func (b *bindings) find() *binding {
	for i := range b.all {
		if slices.Equal(b.all[i].key, b.key) {
			return &b.all[i]
		}
	}
	return nil
}

// add caches a binding for the run that was described.
func (b *bindings) add(c *C.ortx_binding, graph int) *binding {
	made := binding{c: c, key: slices.Clone(b.key), graph: graph}
	if len(b.all) < b.permanent+maxBindings {
		b.all = append(b.all, made)
		return &b.all[len(b.all)-1]
	}
	replaced := &b.all[b.permanent+b.oldest]
	b.oldest = (b.oldest + 1) % maxBindings
	C.ortx_free_binding(replaced.c)
	*replaced = made
	return replaced
}

// drop forgets the binding that was added last.
func (b *bindings) drop() {
	last := len(b.all) - 1
	C.ortx_free_binding(b.all[last].c)
	b.all = b.all[:last]
}

func (b *bindings) close() {
	for i := range b.all {
		C.ortx_free_binding(b.all[i].c)
	}
	*b = bindings{}
}

// pairs is options as C takes them; free them.
type pairs struct {
	keys, values **C.char
	count        C.size_t
}

func newPairs(options []option) pairs {
	size := C.size_t(max(len(options), 1)) * C.size_t(unsafe.Sizeof((*C.char)(nil)))
	p := pairs{(**C.char)(C.malloc(size)), (**C.char)(C.malloc(size)), C.size_t(len(options))}
	keys, values := unsafe.Slice(p.keys, len(options)), unsafe.Slice(p.values, len(options))
	for i, o := range options {
		keys[i], values[i] = C.CString(o.Key), C.CString(o.Value)
	}
	return p
}

func (p pairs) free() {
	for _, list := range []**C.char{p.keys, p.values} {
		for _, text := range unsafe.Slice(list, p.count) {
			C.free(unsafe.Pointer(text))
		}
		C.free(unsafe.Pointer(list))
	}
}
