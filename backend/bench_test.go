package backend

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/statestore/storetest"
	"tritonstateful/internal/tensor"
)

// idleBatch is a server that does nothing.
type idleBatch struct{ requests []Request }

func (b *idleBatch) Requests() []Request                      { return b.requests }
func (b *idleBatch) Fail(_ int, err error)                    { panic(err) }
func (b *idleBatch) Answer(int, []Output, int, int)           {}
func (b *idleBatch) Reserve(int, []Output, int, int) []uint64 { panic("a CPU reserves nothing") }
func (b *idleBatch) Describe(int, AnswerParameters)           {}
func (b *idleBatch) Hold(int) Held                            { panic("no ID begins twice") }
func (b *idleBatch) Park(int) func(any)                       { panic("nothing is resumed") }
func (b *idleBatch) Send()                                    {}
func (b *idleBatch) Finish(Timing)                            {}

// idleServer is an instance of which only our own work takes time, with live
// sequences of which the batch has some.
func idleServer(t testing.TB, live, batch int, edits ...func(*setup)) (*server, *idleBatch) {
	s := newServer(t, append([]func(*setup){slots(max(live, batch), batch)}, edits...)...)
	s.in.runner = &wrapped{s.in.runner, func(_, _ []onnx.Tensor) error { return nil }}
	s.in.model.server.Clock = func() time.Duration { s.now++; return s.now }
	b := &idleBatch{}
	one := &idleBatch{}
	for id := range live {
		r := s.request(&fakeBatch{}, &ask{id: fmt.Sprint(id + 1), start: true})
		one.requests = []Request{r}
		s.in.Execute(one)
		if id%(live/batch) == 0 && len(b.requests) < batch {
			r.Start = false
			b.requests = append(b.requests, r)
		}
	}
	require.Len(t, b.requests, batch)
	require.Equal(t, live, s.in.store.Usage().Live)
	return s, b
}

// TestNoAllocations: a batch of known sequences allocates nothing, whatever the
// settings.
func TestNoAllocations(t *testing.T) {
	tests := map[string][]func(*setup){
		"default":      nil,
		"string ids":   {stringIDs},
		"padded":       {param("batch_padding", "max")},
		"fp16 states":  {param("store_states_as_fp16", "1")},
		"with metrics": {param("metric_logging_frequency_seconds", "3600"), param("logging_level", "VERBOSE"), param("batch_info_logging_level", "NONE")},
		"never saved":  {savedIn(t, &storetest.Memory{}, "off")},
	}
	for name, edits := range tests {
		for _, batch := range []int{1, 8} {
			t.Run(fmt.Sprintf("%s/batch=%d", name, batch), func(t *testing.T) {
				s, b := idleServer(t, 32, batch, edits...)
				require.Zero(t, testing.AllocsPerRun(100, func() { s.in.Execute(b) }))
			})
		}
	}
}

// TestAllocationsOfASequence: beginning and ending one costs one, the sequence.
func TestAllocationsOfASequence(t *testing.T) {
	s, b := idleServer(t, 1, 1, slots(4, 1))
	b.requests[0].Sequence.Number, b.requests[0].Start, b.requests[0].End = 2, true, true
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { s.in.Execute(b) }), 1.0)
}

// BenchmarkExecute is a whole batch without the model and the server.
func BenchmarkExecute(b *testing.B) {
	for _, batch := range []int{1, 8, 64} {
		for _, live := range []int{batch, 100_000} {
			b.Run(fmt.Sprintf("batch=%d/live=%d", batch, live), func(b *testing.B) {
				s, work := idleServer(b, live, batch)
				b.ReportAllocs()
				for b.Loop() {
					s.in.Execute(work)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/request")
			})
		}
	}
}

// BenchmarkExecuteTextIDs is the same with string ids.
func BenchmarkExecuteTextIDs(b *testing.B) {
	s, work := idleServer(b, 1000, 8, stringIDs)
	for b.Loop() {
		s.in.Execute(work)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*8), "ns/request")
}

// lengthsBatch is a batch of sequences whose requests all differ in shape, for an
// instance of which only our own work takes time.
func lengthsBatch(b *testing.B, size int) (*Instance, *idleBatch) {
	model, c := sumModel(), sumConfig()
	model.sig.Inputs[0].Dims[1], c.Inputs[0].Dims[0] = tensor.Dynamic, tensor.Dynamic
	model.sig.Inputs[0].Symbols, model.sig.Inputs[1].Symbols = []string{"batch", "time"}, []string{"batch", ""}
	model.sig.Outputs[0].Symbols[0], model.sig.Outputs[1].Symbols[0] = "batch", "batch"
	model.run = func(_, _ []onnx.Tensor) error { return nil }
	c.MaxBatchSize, c.Sequence.Oldest.MaxCandidateSequences = size, 2*size
	in, err := model.instance(b, c, "")
	require.NoError(b, err)
	work := &idleBatch{}
	for id := range int64(size) {
		start := Request{Sequence: SequenceID{Number: uint64(1 + id)}, Start: true, Inputs: intInput(tensor.Shape{1, 1 + id}, make([]int32, 1+id)...)}
		in.Execute(&idleBatch{requests: []Request{start}})
		start.Start = false
		work.requests = append(work.requests, start)
	}
	return in, work
}

// BenchmarkLengths is a batch that takes as many runs as it has requests.
func BenchmarkLengths(b *testing.B) {
	for _, size := range []int{64, 256, 1024} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			in, work := lengthsBatch(b, size)
			b.ReportAllocs()
			for b.Loop() {
				in.Execute(work)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size), "ns/request")
		})
	}
}
