package backend

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"tritonstateful/statebuffer"
)

// A model may behave differently from some length on: frequencies that change at 4096
// tokens, or attention to the first and the last rows only. So unequal lengths share runs
// only up to a length that was tried. Copies of a sequence take the same steps together,
// which pads nothing. At each power of two one of them shares runs with others, which are
// padded: one that has just started, one of half the length, and one that is a little shorter.

const (
	// lengthsTime bounds the time of these trials.
	lengthsTime = 3 * time.Second
	// lengthsWanted is how far they go if max_padded_length does not say.
	lengthsWanted = 4096
	// lengthsMemory bounds what the states of a sequence take in them, in bytes; where
	// max_state_memory_bytes is set, that is a share of it.
	lengthsMemory      = 64 << 20
	lengthsMemoryShare = 12 // as many sequences are tried at once
	// lengthsByStep is how long sequences get step by step. Beyond it, states are stretched,
	// and with several masks before, so that their lengths differ.
	lengthsByStep = 16
	// nearBy is by how much the longest sequence is longer than the one of about its length.
	nearBy = 16
)

// paddedLengths is up to which length unequal lengths share runs.
type paddedLengths struct {
	reached []int64 // of each of plan.Masks
	tried   int64   // what trials have reached, of the first mask
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
	lengths.tried = lengths.reached[0]
	if told := in.model.params.MaxPaddedLength; told > 0 && (lengths.why == nil || errors.Is(lengths.why, errUndecided)) {
		lengths.reached = in.toldLengths()
	}
	return lengths, nil
}

// toldLengths is max_padded_length for each mask.
func (in *Instance) toldLengths() []int64 {
	return slices.Repeat([]int64{in.model.params.MaxPaddedLength}, len(in.plan.Masks))
}

// longestToTry is the length that trials go up to. limited is an error if memory is why it is
// less than wanted.
func (in *Instance) longestToTry() (most int64, limited error) {
	params := in.model.params
	most = lengthsWanted
	if params.MaxPaddedLength > 0 {
		most = min(params.MaxPaddedLength, math.MaxInt64-nearBy) + nearBy
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
	memory := int64(lengthsMemory)
	if params.MaxStateMemory > 0 {
		memory = min(memory, params.MaxStateMemory/lengthsMemoryShare)
	}
	if total > 0 && most > memory/total {
		return max(1, memory/total), fmt.Errorf("%wits states would take more than %d bytes in a trial", errUndecided, memory)
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
	long, half, near := newCopies(50), newCopies(60), newCopies(70)
	var last []int64 // what was reached before the last shared runs, which may show late
	for next := min(16, most); ; {
		started := newCopies(80)
		shared := []sharedStep{{other: started, extent: t.extent}, {other: half, extent: t.short}, {other: near, extent: t.extent}, {other: near, extent: t.short}}
		if hasOptional(t.in.plan) {
			shared = append(shared, sharedStep{other: started, extent: t.extent, optional: true}, sharedStep{other: near, extent: t.short, optional: true})
		}
		if hasIntegers(t.in.plan) {
			shared = append(shared, sharedStep{other: near, extent: t.short, plus: uint64(next)})
		}
		before := next // the shared steps
		for _, step := range shared {
			before -= step.extent
		}
		lengths.why = t.growTo(long, before+t.extent)
		for _, g := range []struct {
			c      *copies
			length int64
		}{{half, next / 2}, {near, t.length(long, 0) - max(t.extent, min(nearBy, next/4))}, {started, 0}} {
			if lengths.why == nil {
				lengths.why = t.growTo(g.c, g.length)
			}
		}
		if lengths.why != nil {
			if !errors.Is(lengths.why, errUndecided) {
				lengths.reached = last
			}
			return lengths
		}
		for _, step := range shared {
			if lengths.why = t.pad(long, step); lengths.why != nil {
				return lengths
			}
		}
		last, lengths.reached = lengths.reached, make([]int64, len(t.in.plan.Masks))
		for mask := range lengths.reached { // from its length on, the model may change for another one
			lengths.reached[mask] = t.length(near, mask)
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

// sharedStep is a step that the longest sequence takes together with another one.
type sharedStep struct {
	other    *copies
	extent   int64 // of the open axes of inputs
	optional bool  // with the inputs that requests may leave out
	// plus is added to the integers of the longest one, which may be positions; the step is left
	// out if the model does not run with them.
	plus uint64
}

func newCopies(id uint64) *copies { return &copies{shares: id, control: id + 1, twin: id + 2} }

// live is the sequence of an ID, or nil if it has not started.
func (t *maskTrial) live(id uint64) *statebuffer.Sequence {
	return t.in.store.Live(statebuffer.Key{Number: id, Token: id})
}

// length is how long a sequence is under a mask.
func (t *maskTrial) length(c *copies, mask int) int64 {
	q := t.live(c.shares)
	return t.in.store.Length(t.in.plan.Generated[t.in.plan.Masks[mask]].Mask.Covers[0], q)
}

// growTo runs the same steps of all copies until one more gives them a length. What
// padding has left in one of them makes their answers differ.
func (t *maskTrial) growTo(c *copies, length int64) error {
	for !c.started || t.length(c, 0) < length-t.extent {
		before, stretch := t.length(c, 0), int64(0)
		if c.started && (length > lengthsByStep || len(t.in.plan.Masks) > 1) {
			stretch = max(0, length-2*t.extent-before)
		}
		inputs := t.step(t.extent)
		answers, err := t.stretching(stretch, trialRequest{c.shares, !c.started, inputs}, trialRequest{c.control, !c.started, inputs}, trialRequest{c.twin, !c.started, inputs})
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

// pad runs a step of the longest sequence and another one in a shared run, and the same step
// of their controls, which pads nothing.
func (t *maskTrial) pad(long *copies, step sharedStep) error {
	kind, plus := t.trialKind, t.plus
	t.optional, t.plus = step.optional, t.plus+step.plus
	steps := [2][]Input{t.step(step.extent)}
	t.plus = plus
	steps[1] = t.step(step.extent)
	t.trialKind = kind
	var wanted [2]*trialAnswer
	for i, c := range []*copies{long, step.other} {
		even, err := t.timed(trialRequest{c.control, false, steps[i]}, trialRequest{c.twin, false, steps[i]})
		if i == 0 && step.plus > 0 && errors.Is(err, errUndecided) && !errors.Is(err, errTimeOver) {
			return nil
		}
		if err != nil {
			return err
		}
		wanted[i] = &even[0]
	}
	return t.sharing([2]trialRequest{{long.shares, false, steps[0]}, {step.other.shares, false, steps[1]}}, wanted)
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
	log.Info(share, "length", lengths.tried, "runs", runs, "took", took.Round(time.Millisecond))
	switch why := lengths.why; {
	case why == nil:
	case length > lengths.tried:
		log.Info("sequences of unequal length can share runs beyond the length that was tried, because of max_padded_length", "length", length, "why", why)
	case errors.Is(why, errUndecided):
		log.Info("sequences of unequal length run separately if one is longer than was tried; if you know that longer ones can be padded, set max_padded_length", "length", length, "why", why)
	default:
		log.Warn(fmt.Sprintf("sequences of unequal length run separately if one is longer than %d: %v", length, why))
	}
}
