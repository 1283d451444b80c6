package backend

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tritonstateful/backend/plan"
	"tritonstateful/statebuffer"
)

// A mask lets sequences of unequal length share a run: the shorter ones are padded on
// the left. Not every model that has a mask stands that. One may take it for a length,
// as GroupQueryAttention does, or forget what is old. So before a model is served,
// sequences are played on it, each alone and then together with a longer one, by the
// way that requests take. Only if every answer is the same, unequal lengths share runs.

// maskVerdict is what is known of a model's masks.
type maskVerdict struct {
	separate string  // why unequal lengths run separately; empty if they need not
	grows    []int64 // see Instance.grows
}

// proveMasks tries the masks of a model, and has unequal lengths run separately for good if
// it does not stand them, or if that cannot be seen.
func (in *Instance) proveMasks() {
	if len(in.plan.Masks) == 0 || in.plan.MaxLanes == 1 || in.device != nil {
		return // no values of unequal length meet
	}
	m := in.model
	m.planLock.Lock()
	defer m.planLock.Unlock()
	if m.masks == nil {
		began := time.Now()
		runs, err := in.tryMasks(began.Add(provingMost))
		m.masks = &maskVerdict{grows: in.grows}
		if err != nil {
			m.masks.separate = err.Error()
			m.log.Warn(runSeparately + m.masks.separate)
		} else {
			m.log.Info("sequences of unequal length can share runs: played together, each has the answers that it has by itself", "runs", runs, "took", time.Since(began).Round(time.Millisecond))
		}
	}
	in.grows = m.masks.grows
	if in.separate = m.masks.separate; in.separate != "" {
		in.store.DisableLeftPadding()
	}
}

// provingMost bounds how long it is looked for something that the model runs with.
const provingMost = 10 * time.Second

// errUnjudged says that a trial has not shown anything.
var errUnjudged = errors.New("")

// tryMasks plays sequences with one kind of inputs after another, until one shows
// something. It tells how often the model ran, and what a step appends where a mask
// names no input.
func (in *Instance) tryMasks(until time.Time) (runs int, err error) {
	pl := in.plan
	for _, i := range pl.Masks {
		if f := &pl.Generated[i]; f.Mask.Length < 0 && slices.ContainsFunc(pl.Inputs, func(p plan.IO) bool { return !p.Dims.Without(p.Axis).Fixed() }) {
			return 0, fmt.Errorf("the mask %q names no input, and the inputs vary in shape, so that nobody knows what a step appends; where the mask covers what a step brings as well, write mask(%s, INPUT)", f.Name, f.Mask.States)
		}
	}
	fractions := slices.ContainsFunc(pl.Inputs, func(p plan.IO) bool { return closeness[p.DType] > 0 })
	last := errors.New("the time was over")
	for _, extent := range trialExtents {
		for _, short := range []int64{1, extent} {
			for numbers := range trialNumbers {
				if time.Now().After(until) {
					return runs, in.unjudged(last)
				}
				kind := trialKind{extent: extent, short: short, numbers: numbers, until: until}
				err := in.playMasks(&kind, &runs)
				if err == nil && fractions {
					low := kind
					low.negative = true
					err = judged(in.playMasks(&low, &runs))
				}
				if err == nil {
					kind.before = kind.stepsTo(longestTrial)
					err = judged(in.playMasks(&kind, &runs))
				}
				if !errors.Is(err, errUnjudged) {
					return runs, err
				}
				last = err
			}
		}
	}
	return runs, in.unjudged(last)
}

// judged is err, unless it is no verdict.
func judged(err error) error {
	if errors.Is(err, errUnjudged) {
		return nil
	}
	return err
}

// playMasks makes one trial, adds its runs, and notes in kind what a first step appends.
func (in *Instance) playMasks(kind *trialKind, runs *int) error {
	t, err := in.newMaskTrial(kind)
	if err != nil {
		return fmt.Errorf("%w%w", errUnjudged, err)
	}
	defer t.in.Close()
	err = t.play()
	*runs += t.runner.runs
	kind.appended = t.appended
	if !errors.Is(err, errUnjudged) {
		in.grows = t.in.grows
	}
	return err
}

func (in *Instance) unjudged(why error) error {
	return fmt.Errorf("nothing shows that %s hides padding from the model: %w", in.masks(), why)
}

// masks are the masks' names, for messages.
func (in *Instance) masks() string {
	var names []string
	for _, i := range in.plan.Masks {
		names = append(names, fmt.Sprintf("%q", in.plan.Generated[i].Name))
	}
	return "the mask " + strings.Join(names, " and ")
}

// played is a sequence of a trial: its requests, and the answers to them.
type played struct {
	id      uint64
	steps   [][]Input
	answers []reply
	at      int // the next step
}

func (t *maskTrial) sequence(id uint64, extents ...int64) *played {
	p := &played{id: id}
	for _, extent := range extents {
		p.steps = append(p.steps, t.step(extent))
	}
	return p
}

// next is the next request, and what its answer was if it was played before.
func (p *played) next() (ask trialAsk, want *reply) {
	ask = trialAsk{p.id, p.at == 0, p.steps[p.at]}
	if p.at < len(p.answers) {
		want = &p.answers[p.at]
	}
	p.at++
	return ask, want
}

// again begins the sequence anew, as another one.
func (p *played) again() { p.id, p.at = p.id+1, 0 }

// longestTrial is how long a sequence gets in a trial, in elements of the axis that
// grows. What a model does differently beyond that, such as to drop what is old, is seen
// only by the shapes of its states as it runs.
const longestTrial = 48

// stepsTo is how many steps of a kind that has been played make a sequence that long.
func (k *trialKind) stepsTo(length int64) int {
	return int((length + k.appended - 1) / max(1, k.appended))
}

// play plays three sequences, each by itself and then in pairs of unequal length, in
// which one has just started, too. nil says that the answers are the same, but for what
// the order of a sum makes. An errUnjudged is no verdict.
func (t *maskTrial) play() error {
	long := t.sequence(10, append(slices.Repeat([]int64{t.extent}, t.before), t.extent, t.extent, t.short, t.extent)...)
	middle := t.sequence(20, t.extent, t.short, t.short)
	late := t.sequence(30, t.extent, t.short)
	sequences := []*played{long, middle, late}
	for _, p := range sequences {
		for range p.steps {
			if err := t.byItself(p); err != nil {
				return err
			}
		}
	}
	for _, p := range sequences {
		p.again()
	}
	for _, p := range append(slices.Repeat([]*played{long}, t.before), long, long, middle) { // which leaves them unequal
		if err := t.byItself(p); err != nil {
			return err
		}
	}
	for _, pair := range [][2]*played{{middle, long}, {long, late}, {late, middle}} {
		if err := t.together(pair); err != nil {
			return err
		}
	}
	return t.sees(middle)
}

// byItself plays the next step of a sequence. It runs beside a twin that does the same,
// so that it has company, and nothing is padded.
func (t *maskTrial) byItself(p *played) error {
	if time.Now().After(t.until) {
		return fmt.Errorf("%wthe time was over", errUnjudged)
	}
	ask, want := p.next()
	twin := ask
	twin.id += 100
	replies, err := t.run(ask, twin)
	if err != nil {
		return err
	}
	if want == nil {
		p.answers = append(p.answers, replies[0])
		t.noteGrowth(p)
		return nil
	}
	if why := t.differ(&replies[0], want); why != "" {
		return fmt.Errorf("%wthe answers to the same requests differ: %s", errUnjudged, why)
	}
	return nil
}

// together plays the next step of two sequences of unequal length in one run.
func (t *maskTrial) together(pair [2]*played) error {
	before := t.runner.runs
	first, wantFirst := pair[0].next()
	second, wantSecond := pair[1].next()
	replies, err := t.run(first, second)
	switch {
	case err != nil:
		return err
	case t.in.separate != "":
		return errors.New(t.in.separate)
	case t.runner.runs != before+1:
		return fmt.Errorf("%wsequences of unequal length do not meet in a run of this model", errUnjudged)
	}
	for i, want := range []*reply{wantFirst, wantSecond} {
		if why := t.differ(&replies[i], want); why != "" {
			return fmt.Errorf("%s does not hide padding from the model: %s when sequences of unequal length share a run, the shorter ones padded on the left; a model that takes the mask for a length, as GroupQueryAttention does, cannot be padded so", t.names, why)
		}
	}
	return nil
}

// sees makes sure that an answer tells of the steps before, so that it would have told
// of a padded state that was wrong: after another first step the second has another one.
func (t *maskTrial) sees(p *played) error {
	other := &played{id: 40, steps: [][]Input{t.step(t.extent), p.steps[1]}}
	for range other.steps {
		if err := t.byItself(other); err != nil {
			return err
		}
	}
	if t.differ(&other.answers[1], &p.answers[1]) == "" {
		return fmt.Errorf("%wno answer tells of earlier requests", errUnjudged)
	}
	return nil
}

// noteGrowth notes what the first step of a sequence has appended. Where a mask names no
// input, every other step appends as much.
func (t *maskTrial) noteGrowth(p *played) {
	if p.at != 1 {
		return
	}
	first := t.in.store.Touch(statebuffer.Key{Number: p.id}, t.in.server().Clock())
	for at, i := range t.in.plan.Masks {
		state := t.in.plan.Generated[i].Mask.Covers[0]
		t.in.grows[at] = t.in.store.Length(state, first) - t.in.store.Length(state, nil)
		t.appended = max(t.appended, t.in.grows[at])
	}
}
