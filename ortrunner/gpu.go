package ortrunner

// #include "shim.h"
import "C"

import (
	"errors"
	"log/slog"

	"tritonstateful/internal/cuda"
	"tritonstateful/internal/devicememory"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// gpuRunner is a session on a GPU. It implements onnx.DeviceRunner.
//
// Everything it does is one queue: the stream of the session, which ONNX Runtime
// uses too. A run puts in the copies of the inputs, the model and the copies of
// the outputs, and then waits once, for an event after them. States are gathered
// before and scattered after it in the same stream, so that nothing waits for them.
type gpuRunner struct {
	log         *slog.Logger
	thread      *osThread
	device      onnx.Device
	context     *cuda.Context
	stream      *cuda.Stream
	done        *cuda.Event // after the last run
	memory      *devicememory.Memory
	io          *staging
	where       *C.OrtMemoryInfo
	before      func(*cuda.Stream) error // a run; nil, unless the GPU is simulated
	session     *C.OrtSession
	signature   *onnx.Signature
	inputs      []sessionTensor
	outputs     []sessionTensor
	call        call
	bindings    bindings
	captures    bool       // runs of the warm-up are captured as CUDA graphs
	runSettings []option   // that the configuration passes on to each run
	graphs      int        // captured so far
	copiesIn    []copyD2D  // before the next run
	copiesOut   []copyD2D  // after it
	toHost      []copyD2H  // after it
	pinned      pinnedPool // what toHost copies to
	ran         bool       // what was submitted is in the stream as a whole
	// The run that the thread is to do.
	given, wanted []onnx.Tensor
	submitJob     func() error
	runJob        func() error
	warmUpJob     func() error
}

// copyD2D is a copy within the device: over a part of an input, or of a part of an
// output.
type copyD2D struct {
	to    uint64
	from  uint64
	bytes int64
}

// copyD2H is a copy of an output from the device to the host.
type copyD2H struct {
	to   []byte
	from uint64
}

// runsToCapture is how often ONNX Runtime must run until a graph was captured and
// replayed: two plain runs, one that is captured, one replay.
const runsToCapture = 4

// Signature implements onnx.Runner.
func (r *gpuRunner) Signature() *onnx.Signature { return r.signature }

// Memory implements onnx.Runner.
func (r *gpuRunner) Memory() statebuffer.Memory { return deviceMemory{r.memory} }

// IO implements onnx.DeviceRunner.
func (r *gpuRunner) IO() statebuffer.Memory { return r.io }

// Begin implements onnx.DeviceRunner.
func (r *gpuRunner) Begin() {
	r.copiesIn, r.copiesOut, r.toHost = r.copiesIn[:0], r.copiesOut[:0], r.toHost[:0]
	r.pinned.used = 0
}

// CopyInFrom implements onnx.DeviceRunner.
func (r *gpuRunner) CopyInFrom(to statebuffer.Block, from uint64) {
	twin, staged := r.io.twin(to)
	if !staged {
		panic("ortrunner: CopyInFrom to a block that is not one of IO")
	}
	r.copiesIn = append(r.copiesIn, copyD2D{twin.Addr, from, twin.Size})
}

// CopyOutTo implements onnx.DeviceRunner.
func (r *gpuRunner) CopyOutTo(from statebuffer.Block, to uint64) {
	address := from.Addr
	if twin, staged := r.io.twin(from); staged {
		address = twin.Addr
	}
	r.copiesOut = append(r.copiesOut, copyD2D{to, address, from.Size})
}

// CopyOut implements onnx.DeviceRunner.
func (r *gpuRunner) CopyOut(from statebuffer.Block) ([]byte, error) {
	to, err := r.pinned.take(from.Size)
	if err == nil {
		r.toHost = append(r.toHost, copyD2H{to, from.Addr})
	}
	return to, err
}

// Write implements onnx.DeviceRunner.
func (r *gpuRunner) Write(to uint64, from []byte) error {
	pinned, err := r.pinned.take(int64(len(from)))
	if err != nil {
		return err
	}
	defer r.pinned.giveBack() // many can be written before the next Begin
	copy(pinned, from)
	return errors.Join(r.stream.CopyIn(to, pinned), r.stream.Sync())
}

// Run implements onnx.Runner.
func (r *gpuRunner) Run(inputs, outputs []onnx.Tensor) error {
	r.given, r.wanted = inputs, outputs
	return r.thread.do(r.runJob)
}

// Probe implements onnx.Prober.
func (r *gpuRunner) Probe(inputs, outputs []onnx.Tensor) error {
	r.given, r.wanted = inputs, outputs
	return r.thread.do(func() error { return probing(r.runJob) })
}

// Submit implements onnx.DeviceRunner.
func (r *gpuRunner) Submit(inputs, outputs []onnx.Tensor) error {
	r.given, r.wanted = inputs, outputs
	return r.thread.do(r.submitJob)
}

// Wait implements onnx.DeviceRunner.
func (r *gpuRunner) Wait() (err error) {
	if r.session == nil {
		return nil // it was closed, and waited then
	}
	if r.ran {
		err = r.enqueueOutputs()
	}
	// What was asked for was for this run; what was copied to the host stays there until Begin.
	r.copiesIn, r.copiesOut, r.toHost, r.ran = r.copiesIn[:0], r.copiesOut[:0], r.toHost[:0], false
	// Also after an error: what is in the stream uses memory of the host.
	if e := r.done.Record(r.stream); e != nil {
		return errors.Join(err, e)
	}
	e := r.done.Sync()
	if e == nil {
		r.memory.Waited()
	}
	if err == nil {
		err = e
	}
	return err
}

// WarmUp implements onnx.DeviceRunner.
func (r *gpuRunner) WarmUp(inputs, outputs []onnx.Tensor) error {
	r.given, r.wanted = inputs, outputs
	return r.thread.do(r.warmUpJob)
}

// run is Run, on the thread.
func (r *gpuRunner) run() error {
	err := r.submit()
	if e := r.Wait(); err == nil {
		err = e
	}
	return err
}

// submit is Submit, on the thread.
func (r *gpuRunner) submit() error {
	if r.session == nil {
		return errors.New("run of a session that was closed")
	}
	if err := r.bind(); err != nil {
		return err
	}
	b, err := r.binding(0)
	if err != nil {
		return err
	}
	return r.enqueue(b)
}

// warmUp is WarmUp, on the thread.
func (r *gpuRunner) warmUp() error {
	if err := r.bind(); err != nil {
		return err
	}
	if r.captures && r.bindings.find() == nil && !r.allocates() {
		err := cuda.Capture(r.capture)
		if err == nil {
			return nil
		}
		r.log.Warn("could not capture the runs of a batch size as a CUDA graph; running them without one", "error", err)
	}
	b, err := r.binding(0)
	if err != nil {
		return err
	}
	r.bindings.permanent = len(r.bindings.all)
	return r.execute(b)
}

// capture captures the runs of the tensors that were bound as a CUDA graph.
func (r *gpuRunner) capture() error {
	r.graphs++
	b, err := r.binding(r.graphs)
	if err != nil {
		return err
	}
	for range runsToCapture {
		if err := r.execute(b); err != nil {
			r.bindings.drop()
			return err
		}
	}
	r.bindings.permanent = len(r.bindings.all)
	return nil
}

// bind makes the values of the tensors.
func (r *gpuRunner) bind() error {
	if len(r.given) != len(r.inputs) || len(r.wanted) != len(r.outputs) {
		return status.Errorf(status.InvalidArg, "%d inputs and %d outputs: the model has %d and %d",
			len(r.given), len(r.wanted), len(r.inputs), len(r.outputs))
	}
	r.bindings.begin()
	given := 0
	for i := range r.given {
		p := &r.inputs[i]
		if r.given[i].DType == tensor.Invalid && p.info.Optional {
			r.bindings.note(&onnx.Tensor{}, 0)
			continue
		}
		v, err := r.value(p, &r.given[i])
		if err != nil {
			return p.fail("input", err)
		}
		r.call.inputNames[given], r.call.inputs[given] = p.name, v
		given++
	}
	r.call.c.input_count = C.size_t(given)
	for i := range r.wanted {
		r.call.outputNames[i], r.call.outputs[i] = r.outputs[i].name, nil
		if r.wanted[i].DType == tensor.Invalid {
			r.call.outputNames[i] = nil
		}
		if r.wanted[i].Data.Size == 0 {
			r.bindings.note(&r.wanted[i], uint64(r.wanted[i].DType))
			continue
		}
		v, err := r.value(&r.outputs[i], &r.wanted[i])
		if err != nil {
			return r.outputs[i].fail("output", err)
		}
		r.call.outputs[i] = v
	}
	return nil
}

// value returns the OrtValue of a tensor, at its address on the device.
func (r *gpuRunner) value(p *sessionTensor, t *onnx.Tensor) (*C.OrtValue, error) {
	onDevice := onnx.Tensor{Data: t.Data, DType: t.DType, Shape: t.Shape}
	if t.Data.Bytes != nil {
		twin, staged := r.io.twin(t.Data)
		if !staged {
			return nil, status.Errorf(status.Internal, "%d bytes at host address %#x are not pinned", t.Data.Size, t.Data.Addr)
		}
		onDevice.Data = twin
	}
	r.bindings.note(t, onDevice.Data.Addr)
	return p.value(&onDevice)
}

// allocates reports whether an output is left to ONNX Runtime.
func (r *gpuRunner) allocates() bool {
	for i := range r.wanted {
		if r.wanted[i].Data.Size == 0 && r.wanted[i].DType != tensor.Invalid {
			return true
		}
	}
	return false
}

// binding is that of the tensors that were bound. A new one gets the number of
// its CUDA graph.
func (r *gpuRunner) binding(graph int) (*binding, error) {
	if b := r.bindings.find(); b != nil {
		return b, nil
	}
	p := newPairs(runOptions(r.captures, graph, r.runSettings))
	defer p.free()
	var c *C.ortx_binding
	if err := statusError(C.ortx_bind(r.call.c, r.where, p.keys, p.values, p.count, &c)); err != nil {
		return nil, err
	}
	return r.bindings.add(c, graph), nil
}

// execute puts a run into the stream and waits for it.
func (r *gpuRunner) execute(b *binding) error {
	err := r.enqueue(b)
	if e := r.Wait(); err == nil {
		err = e
	}
	return err
}

// enqueue puts a run into the stream. The copies of its outputs follow in Wait.
func (r *gpuRunner) enqueue(b *binding) error {
	if err := r.enqueueInputs(); err != nil {
		return err
	}
	if r.before != nil {
		if err := r.before(r.stream); err != nil {
			return err
		}
	}
	if err := statusError(C.ortx_run_bound(r.call.c, b.c)); err != nil {
		return err
	}
	r.takeResults()
	r.ran = true
	return nil
}

func (r *gpuRunner) enqueueInputs() error {
	for i := range r.given {
		data := r.given[i].Data
		if data.Bytes == nil {
			continue
		}
		twin, _ := r.io.twin(data)
		if err := r.stream.CopyIn(twin.Addr, data.Bytes); err != nil {
			return r.inputs[i].fail("input", err)
		}
	}
	for _, c := range r.copiesIn {
		if err := r.stream.Copy(c.to, c.from, c.bytes); err != nil {
			return err
		}
	}
	return nil
}

func (r *gpuRunner) enqueueOutputs() error {
	for i := range r.wanted {
		data := r.wanted[i].Data
		if data.Bytes == nil {
			continue
		}
		twin, _ := r.io.twin(data)
		if err := r.stream.CopyOut(data.Bytes, twin.Addr); err != nil {
			return r.outputs[i].fail("output", err)
		}
	}
	for _, c := range r.copiesOut {
		if err := r.stream.Copy(c.to, c.from, c.bytes); err != nil {
			return err
		}
	}
	for _, c := range r.toHost {
		if err := r.stream.CopyOut(c.to, c.from); err != nil {
			return err
		}
	}
	return nil
}

// takeResults sets the data and shapes of the outputs that ONNX Runtime has
// allocated on the device.
func (r *gpuRunner) takeResults() {
	for i := range r.wanted {
		if r.call.results[i].wanted {
			r.call.result(i, &r.outputs[i], &r.wanted[i])
			r.wanted[i].Data.Bytes = nil
		}
	}
}
