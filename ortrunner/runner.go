package ortrunner

// #include "shim.h"
import "C"

import (
	"errors"
	"runtime"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// runner runs a session on the CPU, which it may share with other runners. It implements
// onnx.Runner and onnx.Sharer.
//
// It uses OrtApi::Run with cached values. An IoBinding is no faster where tensors
// stay, and rebinding costs a third more where states change addresses with every
// step (BenchmarkRun, BenchmarkBinding).
type runner struct {
	session *session // counts this runner
	memory  *hostMemory
	inputs  []sessionTensor
	outputs []sessionTensor
	call    call
	closed  bool
}

// newRunner returns one more user of the session.
func newRunner(s *session) (*runner, error) {
	call, err := newCall(s.c, len(s.signature.Inputs), len(s.signature.Outputs), s.run)
	if err != nil {
		return nil, err
	}
	s.join()
	r := &runner{
		session: s,
		memory:  newHostMemory(),
		inputs:  newSessionTensors(s.signature.Inputs),
		outputs: newSessionTensors(s.signature.Outputs),
		call:    call,
	}
	return r, nil
}

// Share implements onnx.Sharer.
func (r *runner) Share() (onnx.Runner, error) {
	if r.closed {
		return nil, errors.New("sharing a session that was closed")
	}
	other, err := newRunner(r.session)
	if err != nil {
		return nil, err // and not other, which would be a Runner that is not nil
	}
	return other, nil
}

// Signature implements onnx.Runner. Dims is nil where the model does not even give
// the rank.
func (r *runner) Signature() *onnx.Signature { return r.session.signature }

// Memory implements onnx.Runner.
func (r *runner) Memory() statebuffer.Memory { return r.memory }

// Run implements onnx.Runner. The size of a tensor's Data must be that of its
// Shape. The error is InvalidArg for tensors that do not fit the model.
func (r *runner) Run(inputs, outputs []onnx.Tensor) error {
	if r.closed {
		return errors.New("run of a session that was closed")
	}
	if err := r.bindInputs(inputs); err != nil {
		return err
	}
	if err := r.bindOutputs(outputs); err != nil {
		return err
	}
	if err := r.call.run(); err != nil {
		return err
	}
	for i := range outputs {
		if r.call.results[i].wanted {
			r.call.result(i, &r.outputs[i], &outputs[i])
		}
	}
	return nil
}

// Probe implements onnx.Prober.
func (r *runner) Probe(inputs, outputs []onnx.Tensor) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return probing(func() error { return r.Run(inputs, outputs) })
}

// probing calls run, whose goroutine must be locked to its thread. ONNX Runtime's log
// lines become verbose ones meanwhile.
func probing(run func() error) error {
	C.ortx_set_probing(true)
	defer C.ortx_set_probing(false)
	return run()
}

// bindInputs puts the names and values of the inputs that are given to the front
// of the call's arrays.
func (r *runner) bindInputs(inputs []onnx.Tensor) error {
	if len(inputs) != len(r.inputs) {
		return status.Errorf(status.InvalidArg, "%d inputs, the model has %d", len(inputs), len(r.inputs))
	}
	given := 0
	for i := range inputs {
		p := &r.inputs[i]
		if inputs[i].DType == tensor.Invalid && p.info.Optional {
			continue
		}
		v, err := p.input(&inputs[i])
		if err != nil {
			return p.fail("input", err)
		}
		r.call.inputNames[given], r.call.inputs[given] = p.name, v
		given++
	}
	r.call.c.input_count = C.size_t(given)
	return nil
}

func (r *runner) bindOutputs(outputs []onnx.Tensor) error {
	if len(outputs) != len(r.outputs) {
		return status.Errorf(status.InvalidArg, "%d outputs, the model has %d", len(outputs), len(r.outputs))
	}
	for i := range outputs {
		p := &r.outputs[i]
		r.call.outputNames[i], r.call.outputs[i] = nil, nil
		if outputs[i].DType == tensor.Invalid {
			continue // not wanted
		}
		v, err := p.output(&outputs[i])
		if err != nil {
			return p.fail("output", err)
		}
		r.call.outputNames[i], r.call.outputs[i] = p.name, v
	}
	return nil
}

// Close implements onnx.Runner. A second Close does nothing.
func (r *runner) Close() {
	if r.closed {
		return
	}
	r.closed = true
	r.call.close()
	for i := range r.inputs {
		r.inputs[i].close()
	}
	for i := range r.outputs {
		r.outputs[i].close()
	}
	r.session.leave()
	r.memory.close()
}
