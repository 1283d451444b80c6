package planner

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/backend/plan/batchaxis"
	"tritonstateful/backend/plan/isolation"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

// proofMost bounds the time that all runs for a plan take.
const proofMost = 5 * time.Second

// A chooser finds the candidate by which a plan is made.
type chooser struct {
	verify  config.Verify
	batches bool // the configuration has a max_batch_size
	fills   bool // max_batch_size is filled in if the configuration has none
	// whole: requests bring the model's whole tensors, and there are no states. Nothing
	// hangs on the batch then.
	whole bool
	// attempt plans inputs and states by a candidate. Its planner has what does not fit.
	attempt func(*batchaxis.Candidate) *planner
	// finish plans the outputs, too.
	finish func(*planner) error
	// runner gives a loaded model whose memory the host can write, or says why there
	// is none.
	runner func() (onnx.Runner, error)
	open   func() (onnx.Runner, error) // see trial.open

	deadline time.Time
	runs     int
	tried    []attempted
	warning  string
	refused  bool // no candidate holds, though some fit
}

// attempted is a candidate that was tried.
type attempted struct {
	candidate *batchaxis.Candidate
	planner   *planner
	isolation.Judgement
	// changes is what is known of states that would begin with nothing.
	changes map[isolation.InputAxis]isolation.Change
	// faults: no plan can be made by it.
	faults error
}

// choose returns the plan by the candidate that holds, if its states can begin.
func (c *chooser) choose(candidates []batchaxis.Candidate) (*planner, error) {
	c.deadline = time.Now().Add(proofMost)
	pl, err := c.pick(candidates)
	if err == nil {
		err = c.checkBeginnings(pl)
	}
	if err != nil {
		return nil, err
	}
	return pl, nil
}

// pick decides between candidates. Those of one rank are tried together: if just one is
// shown to hold, it is taken, and of several the one whose name the most tensors carry.
// Where none is, the next rank has its turn.
func (c *chooser) pick(candidates []batchaxis.Candidate) (*planner, error) {
	if c.whole || c.verify == config.VerifyNever || c.verify == config.VerifyInferred && candidates[0].AllGiven {
		return c.unproved(candidates)
	}
	for len(candidates) > 0 {
		n := 1
		for n < len(candidates) && candidates[n].Rank == candidates[0].Rank {
			n++
		}
		first := len(c.tried)
		for i := range candidates[:n] {
			c.try(&candidates[i])
		}
		if pl, err := c.decide(c.tried[first:]); pl != nil || err != nil {
			return pl, err
		}
		candidates = candidates[n:]
	}
	return c.last()
}

// unproved takes the first candidate that fits, without a run.
func (c *chooser) unproved(candidates []batchaxis.Candidate) (*planner, error) {
	var faults error
	for i := range candidates {
		pl := c.attempt(&candidates[i])
		err := pl.err()
		if all := c.finish(pl); all != nil {
			err = all
		}
		if state, _, _ := c.excludes(&attempted{candidate: &candidates[i], planner: pl}); err == nil && state != nil {
			err = c.refusal(&attempted{candidate: &candidates[i], planner: pl})
		}
		if err != nil {
			if faults == nil {
				faults = err
			}
			continue
		}
		if !candidates[i].AllGiven && !c.whole {
			c.warning = fmt.Sprintf("verify is never: no run has verified that requests in a batch are independent, with the batch at %s", pl.plan.BatchAxes())
		}
		return pl, nil
	}
	return nil, faults
}

// try makes a plan by a candidate and has it judged.
func (c *chooser) try(k *batchaxis.Candidate) {
	a := attempted{candidate: k, planner: c.attempt(k)}
	defer func() { c.tried = append(c.tried, a) }()
	if a.faults = a.planner.err(); a.faults != nil {
		if all := c.finish(a.planner); all != nil {
			a.faults = all
		}
		return
	}
	if c.verify != config.VerifyAlways && !k.IsInferred() && !a.planner.hasOpenStates() {
		a.Verdict = isolation.Isolated // nothing is inferred
		if r, err := c.runner(); err == nil && k.Rank == batchaxis.WithoutBatch && c.batches {
			t := isolation.NewTrial(r, &a.planner.plan, k, a.planner.config.CanRequest, c.deadline)
			a.RanAlone = t.Judge(k.Out).RanAlone
			c.runs += t.Runs
		}
	} else if r, err := c.runner(); err != nil {
		a.Why = err.Error()
	} else {
		t := isolation.NewTrial(r, &a.planner.plan, k, a.planner.config.CanRequest, c.deadline)
		t.Open = c.open
		if a.planner.beginsEmpty() {
			a.changes = t.StateChanges()
		}
		t.MayBegin = c.mayBegin(&a)
		expected := slices.Clone(k.Out)
		for _, states := range [][]plan.State{a.planner.plan.States, a.planner.plan.Varying} {
			for _, s := range states {
				expected[s.Out] = batchaxis.Axis{Index: s.Axis, Known: true, How: s.AxisFrom}
			}
		}
		a.Judgement = t.Judge(expected)
		if k.Rank == batchaxis.ByBatchName && a.givesOneLane() && (a.Verdict == isolation.OneLane || a.Verdict == isolation.NotIsolated && !a.WrongAlone) {
			a.Verdict, a.Why = isolation.Isolated, "" // no two requests ever share a run
		}
		if a.Verdict == isolation.OneLane {
			a.Verdict = isolation.Undecided
			if t.OnlyBatchIsOne() {
				k.SingleLane, a.Verdict, a.Why = true, isolation.Isolated, ""
			}
		}
		c.runs += t.Runs
	}
	for at, axis := range a.Out {
		if !k.Out[at].Known {
			k.Out[at] = batchaxis.Axis{Index: axis, Known: true, How: batchaxis.FoundByRuns}
		}
	}
	a.faults = c.finish(a.planner)
}

// givesOneLane reports whether batch_axes says that a state or an output has no batch, so
// that a run has one lane.
func (a *attempted) givesOneLane() bool {
	none := func(s plan.State) bool { return s.Axis == tensor.NoAxis && s.AxisFrom == batchaxis.ByParameter }
	if slices.ContainsFunc(a.planner.plan.States, none) || slices.ContainsFunc(a.planner.plan.Varying, none) {
		return true
	}
	for i, found := range a.candidate.Out {
		if info := &a.planner.sig.Outputs[i]; found.How == batchaxis.ByParameter && found.Index == tensor.NoAxis && len(info.Dims) > 0 && a.planner.config.CanRequest(info.Name) {
			return true
		}
	}
	return false
}

// decide decides between candidates of one rank. nil and no error is that the next
// rank has its turn.
func (c *chooser) decide(tried []attempted) (*planner, error) {
	var held []*attempted
	for i := range tried {
		if a := &tried[i]; a.faults == nil && a.Verdict == isolation.Isolated && !c.isExcluded(a) {
			held = append(held, a)
		}
	}
	if len(held) > 0 && held[0].candidate.Rank >= batchaxis.SomeWithoutBatch && c.batches && (c.mayHaveBatch(held[0]) || !held[0].planner.fixedPorts()) {
		return nil, nil // that no axis is the batch may be a wrong way to read dims
	}
	several := slices.DeleteFunc(slices.Clone(held), func(a *attempted) bool { return a.candidate.SingleLane })
	if len(several) > 0 {
		held = several
	}
	slices.SortStableFunc(held, func(a, b *attempted) int { return b.candidate.Weight - a.candidate.Weight })
	switch {
	case len(held) == 1, len(held) > 1 && held[0].candidate.Weight > held[1].candidate.Weight:
		return held[0].planner, nil
	case len(held) > 1:
		c.refused = true
		return nil, status.Errorf(status.InvalidArg, "the batch could be at %s, or at %s, and the model runs with either: set the parameter batch_axes, for example %s",
			held[0].planner.plan.BatchAxes(), held[1].planner.plan.BatchAxes(), held[0].planner.line())
	}
	if first := &tried[0]; first.candidate.Rank == batchaxis.ByBatchName && first.candidate.LongName && first.faults != nil && first.Verdict != isolation.NotIsolated {
		return nil, first.faults // other axes than those that say they are the batch would only hide what is wrong
	}
	for i := range tried {
		a := &tried[i]
		if a.faults != nil || a.candidate.Rank != batchaxis.ByBatchName || a.Verdict == isolation.Isolated {
			continue
		}
		if doubt := c.exported(a); doubt != "" {
			c.warning = doubt
			return a.planner, nil
		}
		if a.Verdict == isolation.Undecided && a.candidate.HasLanes() && a.mayHold() {
			return nil, c.refusal(a)
		}
	}
	return nil, nil
}

// mayHaveBatch reports whether some axes may be the batch for all that runs have shown, or are
// by their name though the lanes are not isolated there. none is the candidate without a batch:
// if the model runs with it, axes with which not even one lane runs are not the batch.
func (c *chooser) mayHaveBatch(none *attempted) bool {
	return slices.ContainsFunc(c.tried, func(a attempted) bool {
		return a.faults == nil && a.candidate.HasLanes() && a.candidate.Rank < batchaxis.SomeWithoutBatch && (a.mayHold() || !none.RanAlone) &&
			(a.Verdict == isolation.Undecided || a.candidate.Rank == batchaxis.ByBatchName)
	})
}

// mayHold reports whether something speaks for a candidate: a run with one lane, or the names
// in the model.
func (a *attempted) mayHold() bool {
	return a.RanAlone || a.isNamed()
}

// exported is what is doubtful of a candidate that the exporter has named, and that
// is served all the same; empty if it is not.
func (c *chooser) exported(a *attempted) string {
	switch {
	case !a.candidate.Everywhere || c.isExcluded(a):
		return ""
	case a.Verdict == isolation.Undecided:
		return fmt.Sprintf("could not verify that requests in a batch are independent: %s; by the names in the model, the batch is at %s; to confirm it, write %s", a.Why, a.planner.plan.BatchAxes(), a.planner.line())
	case a.Verdict == isolation.NotIsolated && a.planner.plan.MaxLanes == 1:
		return fmt.Sprintf("requests run one at a time, because requests in a batch would not be independent: %s, with the batch at %s", a.Why, a.planner.plan.BatchAxes())
	}
	return ""
}

// last decides where no candidate was shown to hold.
func (c *chooser) last() (*planner, error) {
	if pl := c.asGiven(); pl != nil {
		return pl, nil
	}
	var best *attempted
	var faults error
	for i := range c.tried {
		a := &c.tried[i]
		if a.faults != nil && a.Verdict != isolation.NotIsolated {
			if faults == nil {
				faults = a.faults
			}
		} else if (a.Verdict == isolation.NotIsolated || a.candidate.HasLanes() || a.RanAlone && !c.isExcluded(a)) && (best == nil || a.likelier(best)) {
			best = a
		}
	}
	switch {
	case faults != nil && (best == nil || best.Verdict != isolation.NotIsolated && c.tried[0].faults != nil):
		return nil, faults
	case best == nil:
		best = &c.tried[len(c.tried)-1]
	}
	return nil, c.refusal(best)
}

// asGiven is what batch_axes says, if it says all: the operator may know better than runs
// of contents that are made up.
func (c *chooser) asGiven() *planner {
	a := &c.tried[0]
	if !a.candidate.InputsGiven || a.faults != nil {
		return nil
	}
	if a.Verdict == isolation.NotIsolated {
		c.warning = fmt.Sprintf("batch_axes sets the batch to %s, but trial runs contradict it: %s", a.planner.plan.BatchAxes(), a.Why)
	} else {
		c.warning = fmt.Sprintf("could not verify that requests in a batch are independent: %s", a.Why)
	}
	return a.planner
}

// err joins what does not fit.
func (pl *planner) err() error {
	if len(pl.faults) == 0 {
		return nil
	}
	return status.Errorf(status.InvalidArg, "%w", errors.Join(pl.faults...))
}

// hasOpenStates reports whether a state has an axis of which nothing says whether it is
// the batch.
func (pl *planner) hasOpenStates() bool {
	return slices.ContainsFunc(pl.plan.Varying, func(s plan.State) bool { return s.Axis == tensor.NoAxis && s.AxisFrom != batchaxis.ByParameter })
}
