package backend

import (
	"slices"

	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// gpuOptions are the settings that only a GPU knows.
func (m *Model) gpuOptions(provider Provider) GPUOptions {
	p := m.params
	gpu := GPUOptions{MemoryLimit: p.GPUMemory, CUDAGraph: p.CUDAGraph, FP16: p.FP16Compute}
	if p.TRTCache {
		gpu.CacheFolder = p.TRTCacheDir
	}
	if provider == TensorRT && p.sound(wiringNames...) {
		gpu.Shapes = m.shapes()
	}
	return gpu
}

// shapes are those of the inputs that have dynamic axes, for batches from one to
// the largest. There are none if the model cannot tell them beforehand; what is
// wrong with it, opening it for good will say.
func (m *Model) shapes() []InputShapes {
	const learns = "TensorRT learns the shapes of this model run by run, and builds anew each time"
	host, err := m.host.Open(SessionOptions{Path: m.path, Name: "shapes", IntraOpThreads: 1})
	if err != nil {
		m.log.Warn(learns+": the CPU cannot open it to read them", "error", err)
		return nil
	}
	defer host.Close()
	w, err := m.wire(host)
	if err != nil {
		return nil
	}
	if w.varies {
		m.log.Warn(learns + ": more than the batch varies")
		return nil
	}
	return m.inputShapes(w, host.Signature())
}

func (m *Model) inputShapes(w *wiring, sig *Signature) []InputShapes {
	usual := w.maxLanes
	if preferred := m.config.preferred(); len(preferred) > 0 {
		usual = min(usual, slices.Max(preferred))
	}
	all := make([]InputShapes, 0, len(sig.Inputs))
	add := func(at, axis int, dims tensor.Shape) {
		if sig.Inputs[at].Dims.Fixed() {
			return
		}
		all = append(all, InputShapes{
			Name:  sig.Inputs[at].Name,
			Least: batched(dims, axis, 1), Usual: batched(dims, axis, int64(usual)), Most: batched(dims, axis, int64(w.maxLanes)),
		})
	}
	for i := range w.inputs {
		add(w.inputs[i].at, w.inputs[i].axis, w.inputs[i].dims)
	}
	for i := range w.fills {
		add(w.fills[i].at, w.fills[i].axis, w.fills[i].dims)
	}
	for i := range w.states {
		add(w.states[i].in, w.states[i].axis, w.states[i].dims)
	}
	return all
}

// checkRoom refuses what the device has no room for, before anything is taken: the
// states of the first chunk of sequences, and the tensors of a batch. A host gives
// out memory that it has not got, so there is nothing to ask.
func (in *Instance) checkRoom(states *statebuffer.Options) error {
	if in.device == nil {
		return nil
	}
	err := statebuffer.Room(states.Memory, statebuffer.Plus(states.Bytes(), ioBytes(in.wiring)))
	if err == nil {
		return nil
	}
	device, managed := in.device.Device(), ""
	if device.Managed != "" {
		managed = "; NVML says " + device.Managed
	}
	return Errorf(Unavailable, "no room on %v for the states of %d sequences and the tensors of batches of %d: %w%s; use fewer slots (%s, max_candidate_sequence_use_ratio), %s",
		device, states.Sizing.Initial, states.MaxLanes, err, managed, in.model.config.candidatesField(), roomRemedy)
}

// roomRemedy is what else to do where a GPU is too small.
const roomRemedy = "allocate them as they are needed (initial_buffer_size), set store_states_as_fp16, bound ONNX Runtime (gpu_mem_limit), or take another GPU (gpus of instance_group)"

// ioMemory is where the host fills inputs and reads outputs.
func (in *Instance) ioMemory() statebuffer.Memory {
	if in.device != nil {
		return in.device.IO()
	}
	return in.runner.Memory()
}

// TakesDevice tells whether the inputs of requests may be in the memory of a GPU.
func (in *Instance) TakesDevice() bool { return in.device != nil }

// place makes the next run take a lane of an input from where it is on the device.
func (in *Instance) place(tensor statebuffer.Block, l statebuffer.Layout, lanes, lane int, from uint64) {
	for x := range l.Pieces {
		at := (x*int64(lanes) + int64(lane)) * l.PieceBytes
		in.device.Place(tensor.At(at, l.PieceBytes), from+uint64(x*l.PieceBytes))
	}
}

// deliver makes the next run copy lanes of an output to where the client wants them
// on the device: one lane behind the other.
func (in *Instance) deliver(tensor statebuffer.Block, o *Output, lane, lanes int, to uint64) {
	size := o.Layout.PieceBytes
	if size == 0 {
		return
	}
	if o.Layout.Pieces == 1 {
		in.device.Deliver(tensor.At(int64(lane)*size, int64(lanes)*size), to)
		return
	}
	for j := int64(lane); j < int64(lane+lanes); j++ {
		for x := range o.Layout.Pieces {
			in.device.Deliver(tensor.At((x*int64(o.Lanes)+j)*size, size), to)
			to += uint64(size)
		}
	}
}

// infer runs the model, and takes note of what it has allocated.
func (x *execution) infer() error {
	in, s := x.in, x.stage
	if in.device != nil && in.wiring.varies {
		return x.inferVarying()
	}
	if err := in.runner.Run(s.inputs, s.outputs); err != nil {
		return err
	}
	return s.takeOutputs(in.wiring, x.step)
}

// inferVarying is infer on a GPU where shapes vary. Those of the answers are known
// when the run is in the stream; only then it can be asked where they are to go.
func (x *execution) inferVarying() (err error) {
	in, s := x.in, x.stage
	defer func() {
		if e := in.device.Wait(); err == nil {
			err = e
		}
	}()
	if err := in.device.Submit(s.inputs, s.outputs); err != nil {
		return err
	}
	if err := s.takeOutputs(in.wiring, x.step); err != nil {
		return err
	}
	return x.reserve()
}

// reserve asks where the answers of a run on a GPU are to go, so that the run itself
// puts them there, or brings them to the host: then nobody waits twice.
func (x *execution) reserve() error {
	in, s := x.in, x.stage
	for i := range in.wiring.outputs {
		if p := &in.wiring.outputs[i]; p.stateOut || p.varies {
			bytes, err := in.device.Bring(s.outputs[p.at].Data)
			if err != nil {
				return Errorf(Internal, "output %q: %w", p.Name, err)
			}
			s.answers[i].Tensor = bytes
		}
	}
	for at, row := range x.rows {
		lane, lanes := x.lanesOf(at)
		for i, to := range x.batch.Reserve(row, s.answers, lane, lanes) {
			if to != 0 {
				in.deliver(s.outputs[in.wiring.outputs[i].at].Data, &s.answers[i], lane, lanes, to)
			}
		}
	}
	return nil
}

// answerEmpty answers a row without a run. What is to be in the memory of a GPU is
// brought there now, and waited for.
func (x *execution) answerEmpty(row int) {
	in := x.in
	if in.device != nil {
		for i, to := range x.batch.Reserve(row, in.empty, 0, 1) {
			if to == 0 {
				continue
			}
			if err := in.device.Write(to, in.empty[i].Tensor); err != nil {
				x.batch.Fail(row, Errorf(Internal, "output %q: %w", in.wiring.outputs[i].Name, err))
				return
			}
		}
	}
	x.batch.Answer(row, in.empty, 0, 1)
}
