package stateful

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"tritonstateful/clients/go/kserve"
)

// header is the one by which a proxy chooses the server: docs/deploy has configurations.
const header = "stateful-sequence"

// Options of a sequence. The zero value of each stands for its default.
type Options struct {
	Version string // of the model; by default the server chooses
	// Key names the state in the store; by default one that no other sequence has.
	Key string
	// ID is the correlation ID; by default a number that no other sequence has.
	ID kserve.SequenceID
	// AttemptTimeout is after how long a server that does not answer is lost; 30 s by default.
	AttemptTimeout time.Duration
	// KeepBytes bounds the inputs that are kept. If more are not yet saved, the oldest are dropped, and the loss of the
	// server can be a StateLostError. 64 MiB by default.
	KeepBytes int
	// Attempts is how many failures of one step are tolerated; 20 by default.
	Attempts int
	// Delay is the pause before the first repetition at the same server; it doubles up to a second. 50 ms by default.
	Delay time.Duration
}

// A Sequence of requests to a stateful model. Every request carries its step, so that none is done twice, and is kept until
// its step is saved. It is for one goroutine at a time.
type Sequence struct {
	model   string
	conns   []*grpc.ClientConn
	options Options

	server     int // index of the connection that has the sequence
	steps      int64
	saved      int64
	before     int64 // saved before it last changed
	recoveries int
	ended      bool
	failures   int // of the current step

	kept      []*request
	keptBytes int
}

// request is a request of the application.
type request struct {
	step   int64
	inputs []kserve.Tensor
	with   with
	bytes  int
}

// with are the choices of one request.
type with struct {
	end, save bool
	outputs   []string
}

// Option is a choice of one request.
type Option func(*with)

// Save has the server answer only when the state is in the store.
func Save() Option { return func(w *with) { w.save = true } }

// Outputs are the names of those to return; all by default.
func Outputs(names ...string) Option { return func(w *with) { w.outputs = names } }

// Answer is that to one request. Its tensors have the shapes of Triton's answers.
type Answer struct {
	Outputs []kserve.Tensor
	Step    int64 // steps that are done, this one included
	Saved   int64 // steps that are safe in the store
}

// Dial connects to servers, or to one proxy, as kserve.Dial does. Connections with other options are as good.
func Dial(addresses ...string) (conns []*grpc.ClientConn, err error) {
	for _, address := range addresses {
		conn, err := kserve.Dial(address)
		if err != nil {
			return nil, err
		}
		conns = append(conns, conn)
	}
	return conns, nil
}

// New makes a sequence, which begins with its first request. There must be at least one connection; they can be shared
// with other sequences, and stay the caller's.
func New(conns []*grpc.ClientConn, model string, o Options) *Sequence {
	var random [24]byte
	_, _ = rand.Read(random[:]) // never fails
	if o.Key == "" {
		o.Key = hex.EncodeToString(random[:16])
	}
	if o.ID == (kserve.SequenceID{}) {
		o.ID.Number = binary.LittleEndian.Uint64(random[16:])>>2 | 1
	}
	orDefault(&o.AttemptTimeout, 30*time.Second)
	orDefault(&o.KeepBytes, 64<<20)
	orDefault(&o.Attempts, 20)
	orDefault(&o.Delay, 50*time.Millisecond)
	first := int(crc32.ChecksumIEEE([]byte(o.Key)) % uint32(len(conns)))
	return &Sequence{model: model, conns: conns, options: o, server: first}
}

func orDefault[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}

// Key names the sequence's state in the store.
func (s *Sequence) Key() string { return s.options.Key }

// Steps is the number of steps that were answered.
func (s *Sequence) Steps() int64 { return s.steps }

// Recoveries is how often the sequence was continued after its server or its state there was lost.
func (s *Sequence) Recoveries() int { return s.recoveries }

// Infer sends the next request and returns its answer. The inputs are copied.
//
// An error with a gRPC status is that of the server for this request: the step is not done, and another request can be
// sent. The errors of this package are about the sequence. If the context ends, send the same request again.
func (s *Sequence) Infer(ctx context.Context, inputs []kserve.Tensor, options ...Option) (*Answer, error) {
	var w with
	for _, option := range options {
		option(&w)
	}
	return s.do(ctx, inputs, w)
}

// End is Infer for the last request of the sequence.
func (s *Sequence) End(ctx context.Context, inputs []kserve.Tensor, options ...Option) (*Answer, error) {
	return s.Infer(ctx, inputs, append(slices.Clone(options), func(w *with) { w.end = true })...)
}

func (s *Sequence) do(ctx context.Context, inputs []kserve.Tensor, w with) (*Answer, error) {
	if s.ended {
		return nil, ErrEnded
	}
	r := &request{step: s.steps, with: w}
	for _, in := range inputs {
		in.Shape, in.Data = slices.Clone(in.Shape), slices.Clone(in.Data)
		r.inputs = append(r.inputs, in)
		r.bytes += len(in.Data)
	}
	s.failures = 0
	response, err := s.call(ctx, r, r.step == 0, false)
	if err != nil {
		response, err = s.recover(ctx, r, err)
	}
	if err != nil {
		return nil, err
	}
	if err := s.check(r, response); err != nil {
		return nil, err
	}
	s.keep(r)
	s.steps++
	s.forget()
	if w.end {
		s.ended, s.kept = true, nil
	}
	return s.answer(response), nil
}

func (s *Sequence) answer(response *kserve.ModelInferResponse) *Answer {
	a := &Answer{Step: s.steps, Saved: s.saved}
	contents := response.GetRawOutputContents()
	for i, out := range response.GetOutputs() {
		t := kserve.Tensor{Name: out.GetName(), Datatype: out.GetDatatype(), Shape: out.GetShape()}
		if i < len(contents) {
			t.Data = contents[i]
		}
		a.Outputs = append(a.Outputs, t)
	}
	return a
}

// call sends a request to the sequence's server.
func (s *Sequence) call(ctx context.Context, r *request, start, resume bool) (*kserve.ModelInferResponse, error) {
	message := kserve.NewRequest(s.model, "", r.inputs, r.with.outputs...)
	message.ModelVersion = s.options.Version
	message.SetStep(s.options.ID, start, r.with.end)
	message.Parameters["stateful_step"] = &kserve.InferParameter{ParameterChoice: &kserve.InferParameter_Int64Param{Int64Param: r.step}}
	if start {
		message.Parameters["stateful_key"] = text(s.options.Key)
	}
	if resume {
		message.Parameters["stateful_resume"] = text("try")
	}
	if r.with.save {
		message.Parameters["stateful_save"] = &kserve.InferParameter{ParameterChoice: &kserve.InferParameter_BoolParam{BoolParam: true}}
	}
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, header, s.options.Key), s.options.AttemptTimeout)
	defer cancel()
	return kserve.Infer(ctx, s.conns[s.server], message)
}

func text(value string) *kserve.InferParameter {
	return &kserve.InferParameter{ParameterChoice: &kserve.InferParameter_StringParam{StringParam: value}}
}
