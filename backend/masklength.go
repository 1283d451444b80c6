package backend

import (
	"errors"
	"fmt"
	"time"

	"tritonstateful/statebuffer"
)

// A model may behave differently from some length on: frequencies that change at 4096
// tokens, or attention to the first and the last rows only. So unequal lengths share runs
// only up to a length that was tried. Copies of a sequence take the same steps together,
// which pads nothing. At each power of two one of them shares runs with two others, which are
// padded: one that has just started, and one that is half as long.

const (
	// lengthsTime bounds the time of these trials.
	lengthsTime = 3 * time.Second
	// lengthsWanted is how far they go if max_padded_length does not say.
	lengthsWanted = 4096
	// lengthsMemory bounds what the states of a sequence take in them, in bytes.
	lengthsMemory = 64 << 20
	// lengthsByStep is how long sequences get step by step. Beyond it, states are stretched.
	lengthsByStep = 16
)

// paddedLengths is up to which length unequal lengths share runs.
type paddedLengths struct {
	reached []int64 // of each of plan.Masks
	why     error   // why no greater length was tried; nil if it is as great as wanted
}

// tryLengths tries lengths of 16, 32 and so on, with the kind of a trial that has shown no
// difference. It is an error, as in tryMask, if the first one is one.
func (in *Instance) tryLengths(kind *trialKind, runs *int) (lengths paddedLengths, err error) {
	most, limited := in.longestToTry()
	if until := time.Now().Add(lengthsTime); until.Before(kind.until) {
		kind.until = until
	}
	t, err := in.newMaskTrial(kind)
	if err != nil {
		return lengths, fmt.Errorf("%w%w", errUndecided, err)
	}
	defer t.Close()
	lengths = t.grow(most)
	*runs += t.runner.runs
	if lengths.reached == nil {
		return lengths, lengths.why
	}
	if lengths.why == nil {
		lengths.why = limited
	}
	if told := in.model.params.MaxPaddedLength; told > 0 && (lengths.why == nil || errors.Is(lengths.why, errUndecided)) {
		for mask := range lengths.reached {
			lengths.reached[mask] = told
		}
	}
	return lengths, nil
}

// longestToTry is the length that trials go up to. limited is an error if memory is why it is
// less than wanted.
func (in *Instance) longestToTry() (most int64, limited error) {
	params := in.model.params
	most = params.MaxPaddedLength
	if most == 0 {
		most = lengthsWanted
	}
	total := int64(0)
	for _, i := range in.plan.Masks {
		for _, state := range in.plan.Generated[i].Mask.Covers {
			each := in.store.LengthBytes(state, nil)
			if total += each; params.MaxStateBytes > 0 && each > 0 {
				most = min(most, max(1, params.MaxStateBytes/each)) // no sequence gets longer
			}
		}
	}
	if total > 0 && most > lengthsMemory/total {
		return max(1, lengthsMemory/total), fmt.Errorf("%wtheir states would take more than %d MiB in a trial", errUndecided, lengthsMemory>>20)
	}
	return most, nil
}

// copies are copies of a sequence: the first shares runs of unequal lengths. The others never
// do, and run together, because an answer may depend on the number of lanes.
type copies struct {
	shares, control, twin uint64
	started               bool
}

// grow tries lengths up to most.
func (t *maskTrial) grow(most int64) (lengths paddedLengths) {
	long, half := &copies{shares: 50, control: 51, twin: 52}, &copies{shares: 60, control: 61, twin: 62}
	var before []int64 // what was reached before the last shared runs, which may show late
	for next := min(16, most); ; {
		if lengths.why = t.growTo(long, next); lengths.why == nil {
			lengths.why = t.growTo(half, next/2)
		}
		if lengths.why != nil {
			if !errors.Is(lengths.why, errUndecided) {
				lengths.reached = before
			}
			return lengths
		}
		started := &copies{shares: 70, control: 71, twin: 72}
		lengths.why = t.growTo(started, 0)
		for _, other := range []*copies{started, half} {
			if lengths.why == nil {
				lengths.why = t.pad(long, other)
			}
		}
		if lengths.why != nil {
			return lengths
		}
		before, lengths.reached = lengths.reached, make([]int64, len(t.in.plan.Masks))
		for mask := range lengths.reached {
			lengths.reached[mask] = t.length(long, mask)
		}
		if next == most {
			return lengths
		}
		for next <= t.length(long, 0) {
			next *= 2
		}
		next = min(next, most)
	}
}

// length is how long a sequence is under a mask.
func (t *maskTrial) length(c *copies, mask int) int64 {
	q := t.in.store.Live(statebuffer.Key{Number: c.shares, Token: c.shares})
	return t.in.store.Length(t.in.plan.Generated[t.in.plan.Masks[mask]].Mask.Covers[0], q)
}

// growTo runs the same steps of all copies until one more gives them a length. What
// padding has left in one of them makes their answers differ.
func (t *maskTrial) growTo(c *copies, length int64) error {
	for !c.started || t.length(c, 0) < length-t.extent {
		before := t.length(c, 0)
		if c.started && length > lengthsByStep {
			t.stretch = max(0, length-2*t.extent-before)
		}
		inputs := t.step(t.extent)
		answers, err := t.timed(trialRequest{c.shares, !c.started, inputs}, trialRequest{c.control, !c.started, inputs}, trialRequest{c.twin, !c.started, inputs})
		t.stretch = 0
		if err != nil {
			return err
		}
		if why := t.differ(&answers[0], &answers[1]); why != "" {
			return t.notHidden(why)
		}
		if c.started && t.length(c, 0) <= before {
			return fmt.Errorf("%s needs a model that appends to its states, but a step took them from length %d to %d", t.names, before, t.length(c, 0))
		}
		c.started = true
	}
	return nil
}

// pad runs a step of two sequences of unequal length in a shared run, and the same step of
// their controls, which pads nothing.
func (t *maskTrial) pad(long, other *copies) error {
	steps := [2][]Input{t.step(t.extent), t.step(t.extent)}
	var wanted [2]*trialAnswer
	for i, c := range []*copies{long, other} {
		even, err := t.timed(trialRequest{c.control, false, steps[i]}, trialRequest{c.twin, false, steps[i]})
		if err != nil {
			return err
		}
		wanted[i] = &even[0]
	}
	return t.sharing([2]trialRequest{{long.shares, false, steps[0]}, {other.shares, false, steps[1]}}, wanted)
}

// timed is run, while there is time.
func (t *maskTrial) timed(asks ...trialRequest) ([]trialAnswer, error) {
	if time.Now().After(t.until) {
		return nil, errTimeOver
	}
	return t.run(asks...)
}

// reportPadded says up to which length sequences of unequal length share runs, and why not
// beyond it.
func (in *Instance) reportPadded(lengths *paddedLengths, runs int, took time.Duration) {
	const share = "sequences of unequal length can share runs: in trial runs, each has the same answers as by itself"
	log, length := in.model.log, lengths.reached[0]
	log.Info(share, "length", length, "runs", runs, "took", took.Round(time.Millisecond))
	switch why := lengths.why; {
	case why == nil || in.model.params.MaxPaddedLength == length && errors.Is(why, errUndecided):
	case errors.Is(why, errUndecided):
		log.Info("sequences of unequal length run separately if one is longer than was tried; if you know that longer ones can be padded, set max_padded_length", "length", length, "why", why)
	default:
		log.Warn(fmt.Sprintf("sequences of unequal length run separately if one is longer than %d: %v", length, why))
	}
}
