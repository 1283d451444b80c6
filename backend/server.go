package backend

import (
	"log/slog"
	"strconv"
	"time"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/statestore"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// ModelInfo is what the server says of a model when it loads it.
type ModelInfo struct {
	Name    string
	Version uint64
	// Directory is the model's folder in the repository; the version's folder
	// lies in it.
	Directory string
	// Config is the complete model configuration as JSON
	// (TRITONBACKEND_ModelConfig).
	Config []byte
	// ReportMemory, if not nil, takes what the model holds of each memory, whenever that
	// has changed, until its last instance is closed. One goroutine at a time calls it.
	ReportMemory func([]MemoryUse)
}

// InstanceInfo is what the server says of an instance of a model.
type InstanceInfo struct {
	Name string
	// Kind is TRITONSERVER_InstanceGroupKind as text: "cpu", "gpu", "model",
	// "auto".
	Kind       string
	Device     int
	HostPolicy HostPolicy
}

// Server is what a model needs from the process around it.
type Server struct {
	// Log goes to the server's log. It must be cheap when a level is off.
	Log *slog.Logger
	// Clock is CLOCK_MONOTONIC, the clock of the server's statistics.
	Clock func() time.Duration
	// Open loads a model file.
	Open onnx.OpenRunner
	// OpenStore opens the state store with a URL; nil: statestore.Open does.
	OpenStore func(url string) (statestore.Store, error)
	// Trim gives memory that sessions have freed back to the system. It is called at the end
	// of a load and of an unload; nil: it is left to the allocator.
	Trim func()
	// Capability returns the compute capability of a GPU, such as "8.0". It is nil where
	// there are none.
	Capability func(device int) (string, error)
	// GlobalThreads: all sessions share one pool of threads, and what a model says of its
	// own has no effect.
	GlobalThreads bool
	// DefaultBatch is the max_batch_size that the server's operator wants filled
	// in where a configuration has none: default-max-batch-size.
	DefaultBatch int
	// After calls a function once, when that time has passed, on a goroutine of its own. It
	// is nil where nothing is to happen between batches.
	After func(time.Duration, func())
	// Metrics begins to report the metrics of an instance. It is nil, or returns
	// nil, where the server takes none.
	Metrics func(MetricLabels) MetricSink
}

// trim calls Trim.
func (s *Server) trim() {
	if s.Trim != nil {
		s.Trim()
	}
}

// Batch is one batch of requests as the server handed it over, and the way to
// answer it. Every request is answered exactly once, by Fail or Answer; answers
// are collected and leave with the next Send. Requests can also outlive their batch: see
// Hold and Park. After Finish the batch and all that was borrowed from it is gone. One
// goroutine uses a Batch.
type Batch interface {
	// Requests are the requests of the batch, in the server's order; the other methods
	// take an index into them. The slice and the memory it points to are borrowed until
	// Finish.
	Requests() []Request
	// Fail answers a request with an error; status.CodeOf(err) is the code. Further
	// answers to the same request are ignored.
	Fail(req int, err error)
	// Answer answers a request with consecutive lanes of batched tensors. The outputs, in the
	// order of the instance's outputs, are borrowed until Send; an output that
	// the client did not ask for is left out by the server.
	Answer(req int, outputs []Output, lane, lanes int)
	// Reserve asks the server where the answer to a request is to go, before there is
	// one; Answer follows, with as many lanes and bytes, or Fail. It returns the
	// address of each output that is to be in the memory of a GPU, and 0 for the
	// others. The caller fills those, Send does the rest. The tensors of the
	// outputs need not be there yet; the result is valid until the next call. Only
	// instances on a GPU call it, at most once for each request.
	Reserve(req int, outputs []Output, lane, lanes int) []uint64
	// Describe sets the parameters of the answer to a request, in place of those of an
	// earlier call. An error has none.
	Describe(req int, p AnswerParameters)
	// Hold delays the answer to a request and its release, and so keeps the server from
	// handing over what comes after it in its sequence: neither Send nor Finish does it, but
	// the result does. A request that is held several times waits for all of them.
	Hold(req int) Held
	// Park takes a request out of its batch: the batch neither answers, reports nor releases
	// it, and Fail and Answer do nothing to it. Rerun brings it to Execute again, with others or
	// alone, as a request whose Note is note and whose Token is what it was at Park. The caller
	// calls it once, at any time and on any goroutine; it does not wait for Execute. A
	// request that is answered, held or reserved cannot be parked. A request that cannot be run
	// again gets an error; then a note that is a Refusable is told.
	Park(req int) (rerun func(note any))
	// Send sends what was answered since the last Send: one crossing.
	Send()
	// Finish sends what is left, answers what has no answer with an INTERNAL error,
	// reports statistics and releases the requests that are neither held nor parked.
	Finish(Timing)
}

// Refusable is a note of a parked request that wants to know that the request was not run again:
// the server's instance that had it was closed, or there was no memory.
type Refusable interface {
	// Refused is called on any goroutine, also while rerun is called. It does not wait.
	Refused()
}

// Held is a request whose answer waits. One of its methods is called once, at any time and on
// any goroutine; it has no effect before Batch.Finish.
type Held interface {
	// Release sends the answer and releases the request, unless it is held by others, too.
	Release()
	// ReleaseWith is Release with other parameters of the answer, unless p is nil. If err is
	// not nil, it becomes the answer; of several the first counts.
	ReleaseWith(p *AnswerParameters, err error)
}

// Timing is when a batch computed, on the clock of [Server]. Both are zero when
// no model ran.
type Timing struct {
	ComputeStart time.Duration
	ComputeEnd   time.Duration
}

// RunTimes is when the run of a request did what, on the clock of [Server]. A part ends when
// the next one begins. Parts that a run did not come to are 0.
type RunTimes struct {
	Gather time.Duration // began to bring inputs and states into the tensors of the run
	Run    time.Duration // began to run the model
	Store  time.Duration // began to store the new states
	End    time.Duration // ended all that
}

// SequenceID is a correlation ID: a number, or a string for models with string
// IDs. The zero value is no sequence: such requests come from Triton's
// model_warmup and, with the direct scheduler, from idle lanes.
type SequenceID struct {
	Number uint64
	// Text is borrowed until Batch.Finish; strings.Clone what is kept longer.
	Text string
}

// IsZero reports whether the request belongs to no sequence.
func (id SequenceID) IsZero() bool { return id.Number == 0 && id.Text == "" }

// textBytes is the length of the ID as a text.
func (id SequenceID) textBytes() int {
	if id.Text != "" || id.Number == 0 {
		return len(id.Text)
	}
	var digits [20]byte
	return len(id.appendTo(digits[:0]))
}

// appendTo appends the ID as a text, which is empty for no sequence.
func (id SequenceID) appendTo(to []byte) []byte {
	if id.Text != "" || id.Number == 0 {
		return append(to, id.Text...)
	}
	return strconv.AppendUint(to, id.Number, 10)
}

// Request is one request of a batch as the server read it.
type Request struct {
	Sequence SequenceID
	// Token is the same for all requests of a sequence, and no other sequence that the
	// server has at the time has it: where the server keeps the state TokenInput. It is
	// 0 where there is none, and is not known before the START has run.
	Token uint64
	Start bool // TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
	End   bool // TRITONSERVER_REQUEST_FLAG_SEQUENCE_END
	// Cancelled: the client is no longer interested, and the server knows.
	Cancelled bool
	// Timeout is how long the request may wait to run, by its client; 0 is for ever. Only an
	// instance that takes parameters (TakesParameters) gets it.
	Timeout time.Duration
	// Trace is where to note what the request's run did when, if the server traces the
	// request; else nil. Borrowed until Batch.Finish.
	Trace *RunTimes
	// Parameters are the stateful_* parameters of the request, or nil if it has none. Only an
	// instance that takes them (TakesParameters) gets them. Borrowed until Batch.Finish.
	Parameters *Parameters
	// Note is what Park's rerun was called with, nil for a request that the server hands over.
	Note any
	// Inputs are in the order of the instance's inputs.
	Inputs []Input
	// Err is why the server could not read the request; it is what the client
	// gets, and the other fields may be missing then.
	Err error
}

// begins reports whether the model is to see the request as the first of a sequence. One that
// belongs to no sequence is.
func (r *Request) begins() bool { return r.Start || r.Sequence.IsZero() }

// Input is one input tensor of a request, in one contiguous piece of memory. All
// of it is borrowed until Batch.Finish.
type Input struct {
	Present bool // false only for an input that the instance calls optional
	DType   tensor.DType
	Shape   tensor.Shape
	Data    []byte
	// Device and Size are the address and the bytes of an input that is in the
	// memory of a GPU; Data is nil then. Only an instance that takes such inputs
	// (TakesDevice) gets them.
	Device uint64
	Size   int64
}

// bytes is the size of the input, wherever it is.
func (in *Input) bytes() int64 {
	if in.Device != 0 {
		return in.Size
	}
	return int64(len(in.Data))
}

// Output is where the answers to some requests are: a batched tensor in host memory.
type Output struct {
	Tensor []byte
	// Layout and Lanes say where a lane lies in Tensor.
	Layout statebuffer.Layout
	Lanes  int
	// Shape is that of an answer of one lane.
	Shape tensor.Shape
	// Batched: in an answer of several lanes, which follow one another, the first extent is
	// their number.
	Batched bool
	// Offsets, for tensors of type Bytes only, are where each lane begins in
	// Tensor and where the last one ends; Layout does not count then.
	Offsets []int64
}
