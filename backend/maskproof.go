package backend

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/backend/plan/batchaxis"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// A mask lets sequences of unequal length share a run: the shorter ones are padded on
// the left. Not every model that has a mask supports that. One may take the mask for a
// length, as GroupQueryAttention does, or forget what is old. So before a model is served,
// trial sequences run on it as requests do, each by itself and then together with a longer
// one. Only if every answer is the same do unequal lengths share runs, and only up to the
// length that was tried (masklength.go).

// maskVerdict is what is known of a model's masks.
type maskVerdict struct {
	separate string  // why unequal lengths run separately; empty if they need not
	grows    []int64 // see Instance.grows
	padded   []int64 // see Instance.padded
}

// proveMasks tries the masks of a model, and has unequal lengths run separately for good if
// it does not support them, or if nothing shows that it does.
func (in *Instance) proveMasks() { in.proveMasksBy(time.Now().Add(provingMost)) }

func (in *Instance) proveMasksBy(until time.Time) {
	if len(in.plan.Masks) == 0 || in.plan.MaxLanes == 1 || in.device != nil {
		return // values of unequal length do not share a run
	}
	m := in.model
	m.planLock.Lock()
	defer m.planLock.Unlock()
	if m.masks == nil {
		began := time.Now()
		runs, lengths, err := in.tryMasks(until)
		m.masks = &maskVerdict{grows: in.grows, padded: lengths.reached}
		switch {
		case err == nil:
			in.reportPadded(&lengths, runs, time.Since(began))
		case errors.Is(err, errTimeOver) && m.params.MaxPaddedLength > 0:
			m.masks.padded = in.toldLengths()
			m.log.Warn("sequences of unequal length share runs because of max_padded_length: " + err.Error())
		default:
			m.masks.separate = err.Error()
			m.log.Warn(runSeparately + m.masks.separate)
		}
	}
	in.grows, in.separate = m.masks.grows, m.masks.separate
	if in.separate != "" {
		in.store.DisableLeftPadding()
		return
	}
	in.padded = m.masks.padded
}

// provingMost bounds the time of all trials of a model's masks.
const provingMost = 10 * time.Second

// errUndecided says that a trial has no verdict.
var errUndecided = errors.New("")

// errTimeOver is an errUndecided, too.
var errTimeOver = fmt.Errorf("%wthe time ran out", errUndecided)

// tryMasks makes trials with one kind of inputs after another, until one has a verdict. It
// returns how often the model ran, and notes what a step appends where a mask names no
// input.
func (in *Instance) tryMasks(until time.Time) (runs int, lengths paddedLengths, err error) {
	pl := in.plan
	for _, i := range pl.Masks {
		if g := &pl.Generated[i]; g.Mask.Length < 0 && slices.ContainsFunc(pl.Inputs, func(p plan.IO) bool { return !p.Dims.Without(p.Axis).Fixed() }) {
			return 0, lengths, fmt.Errorf("the mask %q names no input, and the inputs vary in shape, so what a step appends is not known; if the mask also covers what a step brings, write mask(%s, INPUT)", g.Name, g.Mask.States)
		}
	}
	fractions := slices.ContainsFunc(pl.Inputs, func(p plan.IO) bool { return closeness[p.DType] > 0 })
	last := errTimeOver
	for _, extent := range trialExtents {
		for _, short := range []int64{1, extent} {
			for numbers := range trialNumbers {
				if time.Now().After(until) {
					return runs, lengths, in.undecided(last)
				}
				kind := trialKind{extent: extent, short: short, numbers: numbers, fractions: trialNumbers[numbers].fractions, until: until}
				err := in.tryMask(&kind, &runs)
				if err == nil {
					err = in.tryFurther(kind, fractions, &runs)
				}
				if err == nil {
					lengths, err = in.tryLengths(&kind, &runs)
				}
				if errors.Is(err, errTimeOver) {
					return runs, lengths, in.undecided(err)
				}
				if !errors.Is(err, errUndecided) {
					return runs, lengths, err
				}
				last = err
			}
		}
	}
	return runs, lengths, in.undecided(last)
}

// tryFurther makes the trials that look closer, of a kind that has shown no difference: with
// large numbers below 0, and with the inputs that requests may leave out. Numbers that the
// model does not run with say nothing, but no time may be short of them.
func (in *Instance) tryFurther(kind trialKind, fractions bool, runs *int) error {
	if fractions {
		for _, low := range lowNumbers {
			k := kind
			k.fractions = low
			if err := in.tryMask(&k, runs); settles(err) {
				return err
			}
		}
	}
	if !hasOptional(in.plan) {
		return nil
	}
	kind.optional = true
	if err := in.tryMask(&kind, runs); err != nil {
		return fmt.Errorf("with the inputs that requests may leave out: %w", err)
	}
	return nil
}

// settles reports whether a trial that looks closer decides: it shows a difference, or
// there was no time for it.
func settles(err error) bool {
	return err != nil && (errors.Is(err, errTimeOver) || !errors.Is(err, errUndecided))
}

// tryMask makes one trial, and adds its runs.
func (in *Instance) tryMask(kind *trialKind, runs *int) error {
	t, err := in.newMaskTrial(kind)
	if err != nil {
		return fmt.Errorf("%w%w", errUndecided, err)
	}
	defer t.Close()
	err = t.try()
	*runs += t.runner.runs
	if !errors.Is(err, errUndecided) {
		in.grows = t.in.grows
	}
	return err
}

func (in *Instance) undecided(why error) error {
	return fmt.Errorf("could not verify that %s hides padding from the model: %w", in.masks(), why)
}

// masks are the masks' names, for messages.
func (in *Instance) masks() string {
	var names []string
	for _, i := range in.plan.Masks {
		names = append(names, fmt.Sprintf("%q", in.plan.Generated[i].Name))
	}
	return "the mask " + strings.Join(names, " and ")
}

// trialSequence is a sequence of a trial: its requests, and the answers to them.
type trialSequence struct {
	id      uint64
	steps   [][]Input
	answers []trialAnswer
	next    int // step
}

func (t *maskTrial) sequence(id uint64, extents ...int64) *trialSequence {
	s := &trialSequence{id: id}
	for _, extent := range extents {
		s.steps = append(s.steps, t.step(extent))
	}
	return s
}

// request is the next request, and what its answer was if it ran before.
func (s *trialSequence) request() (r trialRequest, want *trialAnswer) {
	r = trialRequest{s.id, s.next == 0, s.steps[s.next]}
	if s.next < len(s.answers) {
		want = &s.answers[s.next]
	}
	s.next++
	return r, want
}

// restart begins the sequence again, as another one.
func (s *trialSequence) restart() { s.id, s.next = s.id+1, 0 }

// try runs three sequences, each by itself and then in pairs of unequal length, in one of
// which a sequence has just started. nil says that the answers are the same, except for what
// the order of a sum changes. An errUndecided is no verdict.
func (t *maskTrial) try() error {
	e, short := t.extent, t.short
	// Those that share a run bring the same extent.
	long := t.sequence(10, e, e, short, e, short, e)
	middle := t.sequence(20, e, short, short, short, short)
	late := t.sequence(30, e, short, e, short)
	sequences := []*trialSequence{long, middle, late}
	for _, s := range sequences {
		for range s.steps {
			if err := t.byItself(s); err != nil {
				return err
			}
		}
	}
	for _, s := range sequences {
		s.restart()
	}
	for _, s := range []*trialSequence{long, long, middle} { // which leaves them unequal
		if err := t.byItself(s); err != nil {
			return err
		}
	}
	for range 2 { // what padding leaves in a state may show late
		for _, pair := range [][2]*trialSequence{{middle, long}, {long, late}, {late, middle}} {
			if err := t.together(pair); err != nil {
				return err
			}
		}
	}
	return t.dependsOnStates(middle)
}

// byItself runs the next step of a sequence, together with a duplicate that does the same, so
// that the run has two lanes and no padding.
func (t *maskTrial) byItself(s *trialSequence) error {
	ask, want := s.request()
	answers, err := t.timed(ask, ask.duplicate())
	if err != nil {
		return err
	}
	if want == nil {
		s.answers = append(s.answers, answers[0])
		t.noteGrowth(s)
		return nil
	}
	if why := t.differ(&answers[0], want); why != "" {
		return fmt.Errorf("%wthe answers to the same requests differ: %s", errUndecided, why)
	}
	return nil
}

// together runs the next step of two sequences of unequal length in one run. Their duplicates stop
// here: from now on the sequences only run together.
func (t *maskTrial) together(pair [2]*trialSequence) error {
	first, wantFirst := pair[0].request()
	second, wantSecond := pair[1].request()
	return t.sharing([2]trialRequest{first, second}, [2]*trialAnswer{wantFirst, wantSecond})
}

// sharing runs requests of two sequences of unequal length in one run, and compares the
// answers with those that are wanted.
func (t *maskTrial) sharing(pair [2]trialRequest, wanted [2]*trialAnswer) error {
	before := t.runner.runs
	answers, err := t.run(pair[:]...)
	switch {
	case err != nil:
		return err
	case t.in.separate != "":
		return errors.New(t.in.separate)
	case t.runner.runs != before+1:
		if err := t.notCovered(pair); err != nil {
			return err
		}
		return fmt.Errorf("%wsequences of unequal length do not share a run of this model", errUndecided)
	}
	for i, want := range wanted {
		if why := t.differ(&answers[i], want); why != "" {
			return t.notHidden(why)
		}
	}
	return nil
}

// notCovered is the error about states that no mask names and that keep two sequences from
// sharing a run, or nil.
func (t *maskTrial) notCovered(pair [2]trialRequest) error {
	store, pl := t.in.store, t.in.plan
	sequence := func(r trialRequest) *statebuffer.Sequence {
		return store.Touch(statebuffer.Key{Number: r.id, Token: r.id}, t.in.server().Clock())
	}
	a, b := sequence(pair[0]), sequence(pair[1])
	var missing []string
	for i := range pl.Varying {
		if !pl.Varying[i].TimePadded && store.Differs(i, a, b) {
			missing = append(missing, pl.Varying[i].Input)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	g := &pl.Generated[pl.Masks[0]]
	names := slices.Clone(missing)
	for _, at := range g.Mask.Covers {
		names = append(names, pl.Varying[at].Input)
	}
	argument := config.CommonPattern(names)
	if g.Mask.Length >= 0 {
		l := &pl.Lengths[g.Mask.Length]
		argument += ", " + l.Name
		if batchaxis.OnlyOpenAxis(pl.Inputs[l.Input].Dims) == tensor.NoAxis {
			argument += fmt.Sprintf(":%d", l.Axis)
		}
	}
	return fmt.Errorf("%wit does not name %s, of which the length differs, too: write '%s = mask(%s)'", errUndecided, strings.Join(missing, " and "), g.Name, argument)
}

// notHidden is the error for a difference that padding makes.
func (t *maskTrial) notHidden(why string) error {
	return fmt.Errorf("%s does not hide padding from the model: %s when sequences of unequal length share a run, the shorter ones padded on the left; a model that takes the mask for a length, as GroupQueryAttention does, cannot be padded in this way", t.names, why)
}

// dependsOnStates makes sure that an answer depends on the states under the masks, so that it
// would have shown a padded one that was wrong: if two sequences swap these after their
// first step, the answer to the second step must differ.
func (t *maskTrial) dependsOnStates(s *trialSequence) error {
	t.runner.after = t.swapStates
	_, err := t.timed(trialRequest{40, true, s.steps[0]}, trialRequest{41, true, t.step(t.extent)})
	t.runner.after = nil
	if err != nil {
		return err
	}
	swapped, err := t.timed(trialRequest{40, false, s.steps[1]}, trialRequest{41, false, s.steps[1]})
	if err != nil {
		return err
	}
	if t.differ(&swapped[0], &s.answers[1]) == "" {
		return fmt.Errorf("%wno answer depends on the states that it covers", errUndecided)
	}
	return nil
}

// noteGrowth notes what the first step of a sequence has appended. Where a mask names no
// input, every other step appends as much.
func (t *maskTrial) noteGrowth(s *trialSequence) {
	if s.next != 1 {
		return
	}
	first := t.live(s.id)
	for mask, i := range t.in.plan.Masks {
		state := t.in.plan.Generated[i].Mask.Covers[0]
		t.in.grows[mask] = t.in.store.Length(state, first) - t.in.store.Length(state, nil)
	}
}
