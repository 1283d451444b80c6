// Package batchaxis lists which axis of each tensor of a model can be its batch, by what
// the parameter batch_axes, the names of axes in the model file and the dims of the
// configuration say. It runs nothing: package isolation tries the candidates on the model.
//
// The nouns:
//
//   - An [Axis] is what is held of the batch axis of one tensor, and what says so.
//   - A [Candidate] has an Axis for every tensor of the model: one way to read it.
//   - Evidence is what a candidate is made of: the parameter, names, dims, the position among
//     the open axes. The [Rank] of a candidate says how good it is.
//   - An open axis is a dynamic one, whose extent the model file leaves out.
//
// [Candidates] lists the candidates of a model, the likeliest first.
//
// It is a package of its own below plan, because it needs no plan: a plan is made by one
// candidate. Its functions have no state and may be called by several goroutines.
package batchaxis
