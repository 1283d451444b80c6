package ortrunner

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"tritonstateful/internal/onnx"
	"tritonstateful/statebuffer"
)

// call is the arguments of a run, as slices over the arrays of an ortx_call.
type call struct {
	c           *C.ortx_call
	inputNames  []*C.char
	inputs      []*C.OrtValue
	outputNames []*C.char
	outputs     []*C.OrtValue
	results     []C.ortx_result
}

// newCall makes the arguments of runs, which have the options run.
func newCall(s *C.OrtSession, inputs, outputs int, run []option) (call, error) {
	c := C.ortx_new_call(s, C.size_t(inputs), C.size_t(outputs))
	if c == nil {
		return call{}, errors.New("allocating the arguments of a run: out of memory")
	}
	if len(run) > 0 {
		p := newPairs(run)
		defer p.free()
		if err := statusError(C.ortx_set_run_options(c, p.keys, p.values, p.count)); err != nil {
			C.ortx_free_call(c)
			return call{}, fmt.Errorf("options of a run: %w", err)
		}
	}
	return call{
		c:           c,
		inputNames:  unsafe.Slice(c.input_names, inputs),
		inputs:      unsafe.Slice(c.inputs, inputs),
		outputNames: unsafe.Slice(c.output_names, outputs),
		outputs:     unsafe.Slice(c.outputs, outputs),
		results:     unsafe.Slice(c.results, outputs),
	}, nil
}

func (c *call) run() error { return statusError(C.ortx_run(c.c)) }

func (c *call) close() { C.ortx_free_call(c.c) }

// result sets Data and Shape of an output that ONNX Runtime allocated. Both are
// memory of the call, valid until the next run.
func (c *call) result(index int, p *sessionTensor, out *onnx.Tensor) {
	r := &c.results[index]
	out.DType = p.info.DType
	out.Data = statebuffer.Block{Addr: uint64(uintptr(r.data)), Bytes: []byte{}, Size: int64(r.bytes)}
	if r.bytes > 0 {
		out.Data = hostBlock(r.data, int64(r.bytes))
	}
	p.shape = p.shape[:0]
	for _, extent := range r.dims[:r.rank] {
		p.shape = append(p.shape, int64(extent))
	}
	out.Shape = p.shape
}
