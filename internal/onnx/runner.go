package onnx

import (
	"fmt"

	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// Runner is a loaded model on one device. One goroutine uses a Runner.
type Runner interface {
	// Signature describes the model's tensors. The caller must not change it.
	Signature() *Signature
	// Memory is where the tensors given to Run live.
	Memory() statebuffer.Memory
	// Run computes the outputs from the inputs, both in the order of the
	// signature; optional inputs (initializers with a default) may be left out
	// by a Tensor of no DType, and so may outputs that no one reads. An output
	// whose Data is empty is allocated by
	// the runner, which then sets its Data and Shape; that memory is valid
	// until the next Run. After an error the contents of the outputs are
	// undefined and the inputs are unchanged.
	//
	// The runner keeps what it builds for a tensor's address and shape, so
	// that a call with tensors seen before allocates nothing.
	Run(inputs, outputs []Tensor) error
	// Close frees the session and every block of its memories.
	Close()
}

// Sharer is a Runner whose session others can use at the same time, so that the weights are
// in memory once.
type Sharer interface {
	// Share returns another Runner of the same model and session, with a memory of its own:
	// each can run on a goroutine of its own, at the same time. The session ends when the
	// last of them is closed. Share must not be called during Close, but may be called
	// during Run.
	Share() (Runner, error)
}

// Sizer is a Runner that knows what its session takes.
type Sizer interface {
	// SessionBytes is the memory that the session holds, in bytes: weights, and what it
	// keeps for activations. It is 0 where ONNX Runtime does not say. Safe for concurrent
	// use until Close.
	SessionBytes() int64
}

// Prober is a Runner that can try whether the model takes certain shapes.
type Prober interface {
	// Probe is Run, but no error stands in the server's log when it fails.
	Probe(inputs, outputs []Tensor) error
}

// DeviceRunner is a Runner on a GPU, whose Memory the host cannot address. All of
// its work goes into one stream; it may run on another thread than the caller's.
type DeviceRunner interface {
	Runner
	// IO is host memory for the tensors that requests bring and answers carry. Run
	// takes its blocks as it takes those of Memory: it copies them to the device
	// before the run and back after it.
	IO() statebuffer.Memory
	// WarmUp is Run as often as it takes until further runs with these tensors
	// are as fast as they get.
	WarmUp(inputs, outputs []Tensor) error
	// Submit is the part of Run that does not wait. When it returns, the shapes of
	// all outputs are known, but nothing else: those that were allocated have Data
	// and Shape. Wait must follow, whatever it has returned.
	Submit(inputs, outputs []Tensor) error
	// Wait ends what Submit began: it waits until all outputs are there, and all
	// copies that CopyOutTo and CopyOut asked for, also since. It is the only place
	// that waits.
	Wait() error
	// Begin forgets the copies that CopyInFrom, CopyOutTo and CopyOut asked for, if
	// the run never came.
	Begin()
	// CopyInFrom makes the next Run copy a part of an input from this address of the
	// device (D2D), instead of what the host has put in the block, a part of one of
	// IO.
	CopyInFrom(to statebuffer.Block, from uint64)
	// CopyOutTo makes the next Run, or Wait, also copy a part of an output to this
	// address of the device (D2D).
	CopyOutTo(from statebuffer.Block, to uint64)
	// CopyOut makes the next Run, or Wait, also copy an output to the host (D2H),
	// which lies in Memory or was allocated by the run. The bytes are there when that
	// returns, and valid until the next Begin.
	CopyOut(statebuffer.Block) ([]byte, error)
	// Write copies from the host to this address of the device (H2D), and waits until
	// it is done.
	Write(to uint64, from []byte) error
	// MemInfo is the device's memory that is free and that there is, in bytes, as
	// the CUDA driver has it.
	MemInfo() (free, total int64, err error)
	// Device returns which one it is.
	Device() Device
}

// Device is the GPU that an instance is on.
type Device struct {
	// Ordinal is its number in this process, as instance_group's gpus name it.
	Ordinal int
	Name    string // "NVIDIA H200"
	// UUID is as NVIDIA's tools print it: "GPU-...", or for a part of a GPU that
	// was split (MIG) "MIG-...".
	UUID string
	// Whole is the UUID of the GPU of which it is a part; empty for a whole one.
	Whole string
	// Managed is what NVML says of its memory, for people: the CUDA driver
	// decides. It is empty where there is no NVML.
	Managed string
}

// String is for log lines and errors.
func (d Device) String() string {
	part := ""
	if d.Whole != "" {
		part = ", a part of " + d.Whole
	}
	return fmt.Sprintf("GPU %d (%s, %s%s)", d.Ordinal, d.Name, d.UUID, part)
}

// Tensor is a batched tensor as a Runner takes it.
type Tensor struct {
	// Data is a block of the runner's Memory, or a part of one. The elements
	// of a tensor of type Bytes stand there as Triton has them: each preceded
	// by its length as uint32, in the machine's order.
	Data  statebuffer.Block
	DType tensor.DType
	Shape tensor.Shape
}
