package planner

import (
	"cmp"
	"slices"

	"tritonstateful/backend/plan"
	"tritonstateful/backend/plan/isolation"
	"tritonstateful/internal/tensor"
)

// likelier reports whether of two candidates that were not shown to hold, a is the more
// likely to be true all the same, so that a refusal should tell of it. It is not if they are
// alike.
func (a *attempted) likelier(b *attempted) bool {
	return cmp.Or(cmp.Compare(a.doubt(), b.doubt()), cmp.Compare(a.candidate.Rank, b.candidate.Rank), cmp.Compare(a.Verdict, b.Verdict)) < 0
}

// doubt is what speaks against a candidate that was not shown to hold. The least is 0.
func (a *attempted) doubt() int {
	switch {
	case a.Misshapen: // nothing can be served with it
		return 4
	case a.Verdict == isolation.Undecided && !a.RanAlone:
		return 3
	case a.isNamed(), !a.candidate.HasLanes() && a.planner.config.MaxBatchSize == 1: // dims of whole tensors fit, and it runs
		return 0
	case !a.candidate.HasLanes(): // though a batch was asked for
		return 2
	case a.Verdict == isolation.Undecided && a.Out == nil: // several lanes do not run
		return 2
	case a.Verdict == isolation.NotIsolated && !a.planner.hasSharedState(): // where lanes share a state, it is no surprise
		return 2
	default:
		return 1
	}
}

// hasSharedState reports whether a state has no batch axis, so that a run has one lane.
func (pl *planner) hasSharedState() bool {
	shared := func(s plan.State) bool { return s.Axis == tensor.NoAxis }
	return slices.ContainsFunc(pl.plan.States, shared) || slices.ContainsFunc(pl.plan.Varying, shared)
}

// isNamed reports whether a candidate goes by names of batches that are hardly chance.
func (a *attempted) isNamed() bool { return a.candidate.LongName || a.candidate.Everywhere }
