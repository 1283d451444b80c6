package backend

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

// models are the shapes of model that the stories are told with.
func models() map[string][]func(*setup) {
	plain := accumulate()
	shaped := func(order, stateOrder string) stream {
		s := accumulate()
		s.order, s.stateOrder = order, stateOrder
		return s
	}
	withoutBatchAxis := func(s *setup) {
		for _, configs := range [][]config.TensorConfig{s.config.Inputs, s.config.Outputs} {
			for i := range configs {
				configs[i].Dims = slices.DeleteFunc(configs[i].Dims, func(d int64) bool { return d < 0 })
			}
		}
	}
	noReset := func(s *setup) {
		s.model = newAccumulator(s.memory, s.streams...)
		s.model.withoutReset()
	}
	return map[string][]func(*setup){
		"batch in the middle":             nil,
		"batch outermost":                 {streamsOf(shaped("brk", "bk"))},
		"batch innermost":                 {streamsOf(shaped("rkb", "kb"))},
		"state with the batch innermost":  {streamsOf(shaped("kbr", "rkb"))},
		"dims without the batch axis":     {withoutBatchAxis},
		"the same, batch innermost":       {streamsOf(shaped("rkb", "kb")), withoutBatchAxis},
		"int32 and fp16":                  {streamsOf(plain.of(tensor.Int32), plain.of(tensor.FP16))},
		"bool, int8, int64 and fp64":      {streamsOf(plain.of(tensor.Bool), plain.of(tensor.Int8), plain.of(tensor.Int64), plain.of(tensor.FP64))},
		"model without a reset":           {noReset},
		"states stored as fp16":           {param("store_states_as_fp16", "1")},
		"fp16 storage, other types":       {param("store_states_as_fp16", "1"), streamsOf(plain.of(tensor.Int32), plain.of(tensor.FP64), plain)},
		"padded to the preferred batch":   {param("batch_padding", "preferred"), func(s *setup) { s.config.Sequence.Oldest.PreferredBatchSizes = []int{2, 5} }},
		"padded to the largest batch":     {param("batch_padding", "max")},
		"END is not inferred":             {param("infer_end_requests", "0")},
		"slots allocated as needed":       {param("initial_buffer_size", "8"), param("subsequent_buffer_size", "8"), param("buffer_alloc_threshold", "8"), param("buffer_dealloc_threshold", "12")},
		"string ids":                      {stringIDs},
		"string ids that look like paths": {stringIDs, param("logging_level", "VERBOSE")},
	}
}

// TestEveryModel lets random clients talk to every shape of model; the answers
// must be the reference's.
func TestEveryModel(t *testing.T) { eachQueueing(t, everyModel) }

func everyModel(t *testing.T, on func(*setup)) {
	for name, edits := range models() {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, append(edits, on)...)
			rng := rand.New(rand.NewPCG(uint64(len(name)), 5))
			for range 80 {
				var asks []ask
				for _, id := range rng.Perm(20)[:1+rng.IntN(8)] {
					a := ask{id: fmt.Sprint(id + 1), start: rng.IntN(4) == 0, end: rng.IntN(5) == 0}
					if s.plain[a.id] == nil && rng.IntN(10) > 0 {
						a.start = true
					}
					asks = append(asks, a)
				}
				var want []string
				for _, a := range asks {
					text := ""
					if !a.start && s.plain[a.id] == nil && (!a.end || s.in.model.params.InferEnd) {
						text = "no such sequence is known"
					}
					want = append(want, text)
				}
				s.batch(asks...).want(want...)
			}
		})
	}
}

// TestAnswerShapes: with -1 at the batch axis of dims, answers have all axes of
// the model and no axis in front; without the batch axis in dims, they have it in
// front, as Triton does.
func TestAnswerShapes(t *testing.T) { eachScheduler(t, answerShapes) }

func answerShapes(t *testing.T, on func(*setup)) {
	for name, want := range map[string]tensor.Shape{
		"batch in the middle": {4, 1, 5}, "batch outermost": {1, 4, 5}, "batch innermost": {4, 5, 1},
		"dims without the batch axis": {1, 4, 5}, "the same, batch innermost": {1, 4, 5},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, append(models()[name], on)...)
			o := s.batch(startOf(1), startOf(2)).ok()
			for _, a := range o.answers {
				require.Equal(t, []tensor.Shape{want}, a.shapes)
			}
		})
	}
}

func TestUnknownSequence(t *testing.T) { eachQueueing(t, unknownSequence) }

func unknownSequence(t *testing.T, on func(*setup)) {
	s := newServer(t, on)
	s.batch(startOf(7)).ok()
	o := s.batch(nextOf(8), nextOf(7), endOf(9))
	o.want(`sequence 8: no such sequence is known`, "", "sequence 9: no such sequence is known")
	require.Equal(t, s.unknown(), status.CodeOf(o.answers[0].err))
	require.Equal(t, []int{1, 1}, s.runner.runs, "the others run without it")
	s.batch(nextOf(8)).code(s.unknown())
	require.Equal(t, []int{1, 1}, s.runner.runs, "nothing runs without a request")
	require.Zero(t, s.last.timing)
}

func TestFull(t *testing.T) { eachQueueing(t, full) }

func full(t *testing.T, on func(*setup)) {
	s := newServer(t, slots(2, 2), on)
	s.batch(startOf(1), startOf(2)).ok()
	o := s.batch(startOf(3), nextOf(1))
	o.want("sequence 3: too many simultaneous sequences", "")
	require.Equal(t, status.Internal, status.CodeOf(o.answers[0].err))
	s.batch(nextOf(3), nextOf(2)).want("sequence 3: its START was refused", "")
	s.batch(endOf(3)).want("its START was refused")
	s.batch(endOf(1)).ok()
	s.batch(nextOf(3)).want("no such sequence is known")
	s.batch(startOf(3)).ok()
	s.batch(nextOf(3), nextOf(2)).ok()
}

func TestFullEvicts(t *testing.T) { eachQueueing(t, fullEvicts) }

func fullEvicts(t *testing.T, on func(*setup)) {
	s := newServer(t, slots(2, 2), param("when_full", "evict_lru"), on)
	s.batch(startOf(1), startOf(2)).ok()
	s.batch(nextOf(1)).ok()
	s.forget(2)
	s.batch(startOf(3), nextOf(1)).ok()
	s.batch(nextOf(2)).want("sequence 2: its state was evicted")
	s.forget(1, 3)
	s.batch(startOf(4), startOf(5)).ok() // both others are older
}

func TestEndInferred(t *testing.T) { eachQueueing(t, endInferred) }

func endInferred(t *testing.T, on func(*setup)) {
	s := newServer(t, on)
	s.batch(startOf(1), startOf(2), wholeOf(3)).ok()
	s.batch(endOf(1), nextOf(2)).ok()
	s.batch(nextOf(1)).want("no such sequence")
	s.batch(endOf(2)).ok()
	require.Equal(t, []int{3, 2, 1}, s.runner.runs)
}

func TestEndNotInferred(t *testing.T) { eachScheduler(t, endNotInferred) }

func endNotInferred(t *testing.T, on func(*setup)) {
	s := newServer(t, param("infer_end_requests", "0"), on)
	s.batch(startOf(1), startOf(2), wholeOf(3)).ok()
	s.batch(endOf(1), nextOf(2)).ok()
	require.Positive(t, s.last.timing.ComputeStart)
	s.batch(nextOf(1)).want("no such sequence")
	s.batch(endOf(2), endOf(4)).ok()
	require.Zero(t, s.last.timing, "nothing was computed")
	require.Equal(t, []int{2, 1}, s.runner.runs)
}

// TestTwoRequestsOfOneSequence: Triton forgets an ID when its END is queued, so
// that a new sequence of the same ID can meet the old one's last requests. They
// run one after the other, the old one first.
func TestTwoRequestsOfOneSequence(t *testing.T) {
	tests := []struct {
		name  string
		batch []ask
		runs  []int
	}{
		{"old END, new START", []ask{endOf(7), startOf(7), nextOf(8)}, []int{2, 1}},
		{"new START, old END", []ask{startOf(7), nextOf(8), endOf(7)}, []int{2, 1}},
		{"old request, new START", []ask{startOf(7), nextOf(7)}, []int{1, 1}},
		{"old END, new START and END", []ask{wholeOf(7), endOf(7)}, []int{1, 1}},
		{"two requests", []ask{nextOf(7), nextOf(7), nextOf(8)}, []int{2, 1}},
		{"three requests", []ask{startOf(7), nextOf(7), endOf(7)}, []int{1, 1, 1}},
		{"two whole sequences", []ask{wholeOf(9), wholeOf(9)}, []int{1, 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t)
			s.batch(startOf(7), startOf(8)).ok()
			s.runner.runs = nil
			s.batch(tt.batch...).ok()
			require.Equal(t, tt.runs, s.runner.runs)
			s.batch(nextOf(8)).ok()
		})
	}
}

// TestTwoRequestsNotInferred is the same where END does not run.
func TestTwoRequestsNotInferred(t *testing.T) {
	for _, batch := range [][]ask{
		{endOf(7), startOf(7)}, {startOf(7), endOf(7)}, {nextOf(7), wholeOf(7), startOf(9)}, {wholeOf(7), nextOf(7), startOf(9)},
		{nextOf(7), endOf(7), startOf(9)}, {nextOf(7), startOf(9), endOf(7), startOf(10)},
	} {
		s := newServer(t, param("infer_end_requests", "0"))
		s.batch(startOf(7), startOf(8)).ok()
		s.batch(batch...).ok()
		s.batch(nextOf(8)).ok()
		for id := range s.plain {
			s.batch(nextOf(id)).ok()
		}
	}
}

// TestTwoRequestsOneBad: a request that is refused must not pull the sequence
// from under the one that runs.
func TestTwoRequestsOneBad(t *testing.T) {
	lost := errors.New("unreadable")
	bad := map[string]func(ask) ask{
		"wrong input": ask.wrongInput,
		"unreadable":  func(a ask) ask { return a.unreadable(lost) },
		"cancelled":   ask.cancel,
	}
	for name, spoil := range bad {
		for _, inferred := range []string{"0", "1"} {
			for _, batch := range [][]ask{
				{nextOf(7), spoil(startOf(7)), startOf(9)}, {spoil(startOf(7)), nextOf(7), startOf(9)},
				{nextOf(7), spoil(endOf(7)), startOf(9)}, {nextOf(7), spoil(wholeOf(7)), startOf(9)},
				{endOf(7), spoil(startOf(7)), startOf(9)}, {spoil(nextOf(7)), startOf(7), startOf(9)},
				{spoil(endOf(7)), startOf(7), startOf(9)},
			} {
				s := newServer(t, param("infer_end_requests", inferred))
				s.batch(startOf(7), startOf(8)).ok()
				o := s.batch(batch...)
				for i, a := range batch {
					spoiled := a.mangle != nil || a.err != nil || a.cancelled
					skipped := a.mangle != nil && a.end && inferred == "0" // what does not run is not checked
					require.Equal(t, spoiled && !skipped, o.answers[i].err != nil, "%s: %+v: %v", name, a, o.answers[i].err)
				}
				require.Equal(t, len(s.plain), s.in.store.Usage().Live, "%s, inferred %s: %+v", name, inferred, batch)
				for id := range s.plain {
					s.batch(nextOf(id)).ok()
				}
				if !batch[0].start && s.plain["7"] == nil {
					s.batch(nextOf(7)).code(status.InvalidArg)
				}
			}
		}
	}
}

// TestBadRequest: it gets its error, the others run, and what it says of its
// sequence counts: a START that fails leaves none, an END frees the slot.
func TestBadRequest(t *testing.T) { eachQueueing(t, badRequest) }

func badRequest(t *testing.T, on func(*setup)) {
	shape := func(shape ...int64) func(*Request) { return func(r *Request) { r.Inputs[0].Shape = shape } }
	tests := []struct {
		name  string
		spoil func(ask) ask
		want  string
		code  status.Code
	}{
		{"missing", func(a ask) ask { return a.with(func(r *Request) { r.Inputs[0] = Input{} }) }, `input "Input" is missing`, status.InvalidArg},
		{"type", ask.wrongInput, `input "Input" is of type UINT8: want FP32`, status.InvalidArg},
		{"a batch of two", func(a ask) ask { return a.with(shape(1, 4, 2, 5)) }, `input "Input" has shape [1,4,2,5]: want [1,4,1,5]`, status.InvalidArg},
		{"batch of two", func(a ask) ask { return a.with(shape(2, 4, 1, 5)) }, `input "Input" has shape [2,4,1,5]: want [1,4,1,5]`, status.InvalidArg},
		{"rank", func(a ask) ask { return a.with(shape(4, 1, 5)) }, `input "Input" has shape [4,1,5]: want [1,4,1,5]`, status.InvalidArg},
		{"too few bytes", func(a ask) ask { return a.with(func(r *Request) { r.Inputs[0].Data = r.Inputs[0].Data[:79] }) }, `input "Input" has 79 bytes: want 80`, status.InvalidArg},
		{"too many bytes", func(a ask) ask {
			return a.with(func(r *Request) { r.Inputs[0].Data = append(r.Inputs[0].Data, 0) })
		}, `input "Input" has 81 bytes: want 80`, status.InvalidArg},
		{"unreadable", func(a ask) ask { return a.unreadable(status.Errorf(status.Unsupported, "in GPU memory")) }, "in GPU memory", status.Unsupported},
		{"cancelled", ask.cancel, "cancelled before it ran", status.Cancelled},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t, on)
			s.batch(startOf(1), startOf(2), startOf(3), startOf(4)).ok()
			o := s.batch(tt.spoil(nextOf(1)), nextOf(4)).want(tt.want, "")
			require.Equal(t, tt.code, status.CodeOf(o.answers[0].err))
			require.Equal(t, []int{4, 1}, s.runner.runs, "it is not in the run")
			s.batch(nextOf(1)).ok() // a request that failed changed nothing
			s.batch(tt.spoil(startOf(2)), nextOf(4)).want(tt.want, "")
			s.batch(nextOf(2)).want("its START failed")
			s.batch(tt.spoil(endOf(3)), nextOf(4)).want(tt.want, "")
			if tt.code != status.Cancelled {
				s.endAgain(3)
			}
			s.batch(nextOf(3)).want("no such sequence")
			s.batch(tt.spoil(startOf(5)), tt.spoil(wholeOf(6)), nextOf(4)).want(tt.want, tt.want, "")
			s.batch(nextOf(5)).want("its START failed")
			s.batch(startOf(5), startOf(2), startOf(3)).ok()
		})
	}
}

// TestIdle: the request that comes after the limit continues, since it is in use;
// others are gone after twice the limit, or when their slot is needed.
func TestIdle(t *testing.T) {
	s := newServer(t, slots(2, 2))
	s.batch(startOf(1), startOf(2)).ok()
	s.now += 13 * time.Second // more than twice the limit of one and ten seconds
	s.forget(2)
	s.batch(nextOf(1)).ok()
	s.batch(nextOf(2)).want("sequence 2: its state expired 0s ago")
	s.batch(startOf(2)).ok()
	s.now += 1100 * time.Millisecond
	s.batch(nextOf(1)).ok()
	s.forget(2)
	s.batch(startOf(3)).ok() // in the slot of 2, which has idled longer than 1 s
	require.EqualValues(t, 2, s.in.store.Counters().Expired)
}

// TestWarmUpRequests come from model_warmup and belong to no sequence.
func TestWarmUpRequests(t *testing.T) {
	for _, edit := range []func(*setup){func(*setup) {}, stringIDs} {
		s := newServer(t, edit)
		without := func(start, end bool) ask { return ask{id: "", start: start, end: end} }
		s.batch(startOf(7)).ok()
		s.batch(without(true, false), without(false, false), without(false, true), without(true, true), nextOf(7)).ok()
		require.Equal(t, []bool{true, true, true, true, false}, sorted(s.runner.resets[1]))
		require.Equal(t, 1, s.in.store.Usage().Live)
		s.batch(without(true, false).wrongInput(), without(false, true).wrongInput()).code(status.InvalidArg)
		require.Equal(t, 1, s.in.store.Usage().Live)
	}
}

func sorted(b []bool) []bool { // true first
	slices.SortFunc(b, func(a, b bool) int { return index(b) - index(a) })
	return b
}

// TestBorrowedIDs: the memory of a string ID is something else after the batch.
func TestBorrowedIDs(t *testing.T) { eachQueueing(t, borrowedIDs) }

func borrowedIDs(t *testing.T, on func(*setup)) {
	s := newServer(t, stringIDs, slots(3, 3), on)
	s.batch(startOf("alpha"), startOf("beta"), startOf("gamma")).ok()
	s.batch(startOf("delta")).want("slots are taken")
	for range 3 {
		s.batch(nextOf("beta"), nextOf("alpha")).ok()
	}
	s.batch(nextOf("delta")).want(`sequence "delta": its START was refused`)
	s.batch(endOf("alpha")).ok()
	s.batch(nextOf("alpha")).want(`sequence "alpha": no such sequence`)
	s.batch(startOf("delta"), nextOf("beta")).ok()
}

func TestEmptyBatch(t *testing.T) { eachScheduler(t, emptyBatch) }

func emptyBatch(t *testing.T, on func(*setup)) {
	s := newServer(t, on)
	s.batch().ok()
	require.Empty(t, s.runner.runs)
}
