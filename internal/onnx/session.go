package onnx

import "tritonstateful/internal/tensor"

// Provider is an execution provider of ONNX Runtime.
type Provider uint8

// The execution providers that a configuration can ask for.
const (
	CPU Provider = iota
	CUDA
	TensorRT
)

// String is the provider's name as ONNX Runtime's documentation has it.
func (p Provider) String() string {
	return [...]string{"CPU", "CUDA", "TensorRT"}[p]
}

// SessionOptions is how a model is to be loaded.
type SessionOptions struct {
	// Path of the ONNX file.
	Path     string
	Provider Provider
	// Device is the ordinal of the GPU; ignored by CPU.
	Device int
	// IntraOpThreads is ONNX Runtime's number of threads for one operator of
	// one session; 0 leaves the choice to ONNX Runtime. A global pool of threads
	// takes the place of this and of InterOpThreads.
	IntraOpThreads int
	// Parallel runs operators that do not depend on each other at the same time, on
	// InterOpThreads threads; 0 leaves their number to ONNX Runtime.
	Parallel       bool
	InterOpThreads int
	// Optimization is the graph optimisation level: "disabled", "basic",
	// "extended" or "all".
	Optimization string
	// Name is used in ONNX Runtime's log lines.
	Name string
	// NoArena allocates and frees host memory for each tensor of a run, instead of
	// keeping an arena of it. NoPattern does not plan the memory of a run by the
	// runs of the same shapes before.
	NoArena, NoPattern bool
	// Session and Run are passed on to ONNX Runtime, by the keys of SessionKeys and
	// RunKeys.
	Session, Run []Setting
	// Operators are the paths of libraries with custom operators.
	Operators []string
	// Plugin is an execution provider in a library of its own; nil is none. It is for
	// Provider CPU: tensors are in host memory.
	Plugin *Plugin
	// GPU is for execution providers other than CPU.
	GPU GPUOptions
}

// Plugin is an execution provider that ONNX Runtime loads from a library.
type Plugin struct {
	// Library is its path.
	Library string
	// Name is which provider of the library; empty if it has one only.
	Name string
	// Options are the provider's own.
	Options []Setting
}

// GPUOptions is how a model is to be loaded on a GPU.
type GPUOptions struct {
	// MemoryLimit bounds what ONNX Runtime takes of the device's memory for
	// itself, in bytes; 0 is no bound.
	MemoryLimit int64
	// CUDAGraph asks to capture the runs of WarmUp as CUDA graphs and to replay them.
	CUDAGraph bool
	// FP16 lets TensorRT compute with FP16, and CUDA with TF32.
	FP16 bool
	// CacheFolder is where TensorRT keeps what it has built; empty means nowhere.
	CacheFolder string
	// Shapes are the shapes in which TensorRT will see each input that has
	// dynamic axes; without them it learns them run by run, and builds again each
	// time.
	Shapes []InputShapes
	// CUDA and TensorRT are options of these execution providers, by the keys of
	// CUDAKeys and TensorRTKeys. They win over what the other fields come to.
	CUDA, TensorRT []Setting
}

// InputShapes is how large an input of the model gets.
type InputShapes struct {
	Name               string
	Least, Usual, Most tensor.Shape
}

// OpenRunner loads a model. Safe for concurrent use: models load in parallel.
type OpenRunner func(SessionOptions) (Runner, error)
