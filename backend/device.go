package backend

import (
	"tritonstateful/internal/status"
	"tritonstateful/statebuffer"
)

// checkCapacity fails if the device has no room for the states of the first chunk of
// sequences and the tensors of a batch, before anything is allocated. A host overcommits
// memory, so there is nothing to check.
func (in *Instance) checkCapacity(states *statebuffer.Options) error {
	if in.device == nil {
		return nil
	}
	err := statebuffer.CheckCapacity(states.Memory, statebuffer.SatAdd(states.Bytes(), ioBytes(in.plan)))
	if err == nil {
		return nil
	}
	device, managed := in.device.Device(), ""
	if device.Managed != "" {
		managed = "; NVML says " + device.Managed
	}
	return status.Errorf(status.Unavailable, "no room on %v for the states of %d sequences and the tensors of batches of %d: %w%s; use fewer slots (%s, max_candidate_sequence_use_ratio), %s",
		device, states.Sizing.Initial, states.MaxLanes, err, managed, in.slotsField(), capacityRemedy)
}

// capacityRemedy is what else to do where a GPU is too small.
const capacityRemedy = "allocate them on demand (initial_buffer_size), set store_states_as_fp16, limit ONNX Runtime (gpu_mem_limit), or use another GPU (gpus of instance_group)"

// ioMemory is where the host fills inputs and reads outputs.
func (in *Instance) ioMemory() statebuffer.Memory {
	if in.device != nil {
		return in.device.IO()
	}
	return in.runner.Memory()
}

// TakesDevice reports whether the inputs of requests may be in the memory of a GPU.
func (in *Instance) TakesDevice() bool { return in.device != nil }

// copyInFrom makes the next run read a lane of an input from where it is on the device.
func (in *Instance) copyInFrom(block statebuffer.Block, l statebuffer.Layout, lanes, lane int, from uint64) {
	for piece := range l.Pieces {
		in.device.CopyInFrom(block.At(l.Offset(piece, lanes, lane), l.PieceBytes), from+uint64(piece*l.PieceBytes))
	}
}

// copyOutTo makes the next run copy lanes of an output to where the client wants them
// on the device: one lane after the other.
func (in *Instance) copyOutTo(block statebuffer.Block, o *Output, lane, lanes int, to uint64) {
	size := o.Layout.PieceBytes
	if size == 0 {
		return
	}
	if o.Layout.Pieces == 1 {
		in.device.CopyOutTo(block.At(int64(lane)*size, int64(lanes)*size), to)
		return
	}
	for next := lane; next < lane+lanes; next++ {
		for piece := range o.Layout.Pieces {
			in.device.CopyOutTo(block.At(o.Layout.Offset(piece, o.Lanes, next), size), to)
			to += uint64(size)
		}
	}
}
