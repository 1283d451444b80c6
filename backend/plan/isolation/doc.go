// Package isolation shows by runs of a model whether its lanes are isolated: whether what a
// lane of a batch gets depends on nothing but what that lane brings. It is the proof that a
// candidate for the batch axes holds.
//
// The nouns:
//
//   - A lane is the position of one sequence, or of one request, along the batch axis.
//   - A [Trial] runs the model on contents of its own: one lane, several lanes, the same
//     lanes with other contents in some of them.
//   - A role is what a lane has in each of these runs. A comparison makes the runs of some
//     roles, of which every lane keeps its contents once while all others change.
//   - A setting is how a run is made: the extents of open axes, how long states are and
//     what numbers inputs hold. Which settings a model takes has to be tried.
//   - A [Judgement] is a [Verdict] with its reason: [Isolated], [NotIsolated], [OneLane]
//     for a model that runs with one lane only, [Undecided] where no run shows anything.
//   - A [Change] is what a step makes of an extent of a state: an axis whose extent
//     changes is not the batch.
//
// A Trial needs the data of a plan, but nothing of how it was made: package planner asks it
// about each candidate and decides. It runs the model where the host can write its memory.
// The contents are drawn from a fixed seed, so that a model is judged alike each time.
package isolation
