package main

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"tritonstateful/internal/bench/kserve"
)

// idSource hands out correlation IDs, each once in a run.
type idSource struct {
	last atomic.Uint64
	text bool
}

func newIDSource(first uint64, text bool) *idSource {
	ids := &idSource{text: text}
	ids.last.Store(first - 1)
	return ids
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
	request  *kserve.Request
	ids      *idSource
	steps    int          // length of a sequence
	checker  *accumulator // nil: answers are not checked
	emptyEnd bool         // the answer to END is empty and not checked
	values   *values      // nil: all that is sent is right

	id     kserve.SequenceID
	step   int // of the request in flight; 0 is START
	ending bool
	sentAt time.Time
}

// newSequence makes place number index; its request's ID is local, the place's number on its stream.
func newSequence(c config, ids *idSource, index, local int) (*sequence, error) {
	inputs, err := makeInputs(c.inputs, index)
	if err != nil {
		return nil, err
	}
	q := &sequence{
		request: kserve.NewRequest(kserve.Call{
			Model: c.model, ID: strconv.Itoa(local), Inputs: inputs, Outputs: c.outputs,
		}),
		ids:      ids,
		steps:    c.steps,
		emptyEnd: c.endAnswer == endEmpty,
		ending:   true, // so that the first step starts a sequence
	}
	if c.wrong >= 0 {
		q.values = newValues(c, inputs[0].Data)
	}
	if c.verify == verifyAccumulate {
		q.checker, err = newAccumulator(c.inputs[0], c.outputs[0], index)
	}
	return q, err
}

// prepare makes the request of the next step. The last step, or any step when the load is to end, carries END; the
// step after an END starts a new sequence.
func (q *sequence) prepare(last bool) *kserve.Request {
	var flags kserve.Flags
	q.step++
	if q.ending {
		q.id, q.step = q.ids.next(), 0
		flags = kserve.Start
	}
	q.ending = last || q.step == q.steps-1
	if q.ending {
		flags |= kserve.End
	}
	if q.checker != nil {
		q.checker.next(q.request.Input(0), q.step)
	}
	if q.values != nil {
		copy(q.request.Input(0), q.values.at(q.step))
	}
	q.request.SetStep(q.id, flags)
	return q.request
}

// check compares an answer with what it should be.
func (q *sequence) check(response *kserve.Response) error {
	if q.checker == nil || q.ending && q.emptyEnd {
		return nil
	}
	data, found := response.Output(q.checker.output)
	if !found {
		return fmt.Errorf("step %d: no output %q in the answer", q.step, q.checker.output)
	}
	if err := q.checker.check(data); err != nil {
		return fmt.Errorf("step %d: %w", q.step, err)
	}
	return nil
}

// abandon gives the sequence up after an error, because nobody knows what state the server has kept: the next step
// starts a new one. Where the error was wanted, the state is known to be as before, unless it was the START's.
func (q *sequence) abandon() {
	if q.values == nil || q.step == 0 {
		q.ending = true
	}
}
