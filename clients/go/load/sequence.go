package load

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"tritonstateful/clients/go/kserve"
)

// idSource hands out correlation IDs, each once in a run.
type idSource struct {
	last atomic.Uint64
	text bool
}

func (ids *idSource) next() kserve.SequenceID {
	number := ids.last.Add(1)
	if ids.text {
		return kserve.SequenceID{Text: "sequence-" + strconv.FormatUint(number, 10)}
	}
	return kserve.SequenceID{Number: number}
}

// sequence is one place among the concurrent sequences: one sequence after the other, each with an ID of its own and
// one request in flight.
type sequence struct {
	config  Config
	index   int // among all
	local   int // on its stream
	request *kserve.ModelInferRequest
	first   []byte // of the request's first input
	codec   codec  // of that input
	ids     *idSource
	sums    []float64 // expected by -verify, for each column of the first input

	id     kserve.SequenceID
	step   int // of the request in flight; 0 is START
	ending bool
	sentAt time.Time
	// answered counts the answers of the measurement, errors included.
	answered int
}

// newSequence makes place number index; its request's ID is local, the place's number on its stream.
func newSequence(c Config, ids *idSource, index, local int) (*sequence, error) {
	inputs, err := makeInputs(c.Inputs, index)
	if err != nil {
		return nil, err
	}
	q := &sequence{config: c, index: index, local: local, ids: ids, ending: true} // ending: the first step starts a sequence
	q.request = kserve.NewRequest(c.Model, strconv.Itoa(local), inputs, c.Outputs...)
	q.first, q.codec = inputs[0].Data, codecs[inputs[0].Datatype]
	if shape := inputs[0].Shape; c.Verify {
		if q.codec.value == nil || len(shape) == 0 {
			return nil, fmt.Errorf("input %q: -verify needs FP32 or INT32 with columns as the last axis, not %s %v",
				inputs[0].Name, inputs[0].Datatype, shape)
		}
		q.sums = make([]float64, shape[len(shape)-1])
	}
	return q, nil
}

// prepare makes the request of the next step. The last step, or any step when the load is to end, carries END; the
// step after an END starts a new sequence.
func (q *sequence) prepare(last bool) *kserve.ModelInferRequest {
	q.step++
	start := q.ending
	if start {
		q.id, q.step = q.ids.next(), 0
		clear(q.sums)
	}
	q.ending = last || q.step == q.config.Steps-1
	switch {
	case q.config.Wrong >= 0 && q.step >= q.config.WrongFrom:
		q.codec.fill(q.first, func(int) uint8 { return uint8(q.config.Wrong) })
	case q.config.Wrong >= 0 || q.sums != nil:
		q.codec.fill(q.first, q.valueAt)
	}
	if q.sums != nil {
		for i := range len(q.first) / q.codec.bytes {
			q.sums[i%len(q.sums)] += float64(q.valueAt(i))
		}
	}
	q.request.SetStep(q.id, start, q.ending)
	return q.request
}

// valueAt is element i of the first input at this step.
func (q *sequence) valueAt(i int) uint8 { return valueAt(q.index, q.step, i) }

// check compares an answer with what an accumulate model must say. It sees an input of rows × columns and keeps one sum
// for each column:
//
//	sum[c]       = (START ? 0 : sum[c]) + Σ input[r][c] over the rows r
//	output[r][c] = input[r][c] + sum[c]
func (q *sequence) check(response *kserve.ModelStreamInferResponse) error {
	if q.sums == nil || q.ending && q.config.EmptyEnd {
		return nil
	}
	name := q.config.Outputs[0]
	data, found := response.Output(name)
	if !found || len(data) != len(q.first) {
		return fmt.Errorf("step %d: output %q has %d bytes, want %d", q.step, name, len(data), len(q.first))
	}
	for i := range len(data) / q.codec.bytes {
		got, want := q.codec.value(data[i*q.codec.bytes:]), float64(q.valueAt(i))+q.sums[i%len(q.sums)]
		if got != want {
			return fmt.Errorf("step %d: output %q element %d is %g, want %g", q.step, name, i, got, want)
		}
	}
	return nil
}

// abandon gives the sequence up after an error, because its state on the server is unknown: the next step starts a new
// one. Where the error was wanted, the state is known to be as before, unless it was the START's.
func (q *sequence) abandon() {
	if q.config.Wrong < 0 || q.step == 0 {
		q.ending = true
	}
}
