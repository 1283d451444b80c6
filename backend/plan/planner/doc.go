// Package planner makes the plan of a model: it joins what the configuration asks for with
// the tensors of the model file, and finds the batch of each tensor.
//
//	[Make]      evidence makes candidates for the batch (package batchaxis), each gives a
//	            plan, runs of the model prove one (package isolation); the others are
//	            refused with what would be right
//	[Complete]  fills in what a configuration leaves out, by the same means: the server's
//	            auto-completion
//
// The nouns:
//
//   - A [Source] is what both need: the configuration, the signature of the model, and ways
//     to run it.
//   - The planner collects what fits into a plan and every fault, so that one attempt to
//     load a model shows all that is wrong with it. It works for one candidate.
//   - The chooser has a plan made for each candidate and decides which one holds.
//   - A [plan.StateSpec] describes a state before the model's tensors are looked at: by
//     state_pairs, sequence_batching.state, the model's doc string or the names of tensors.
//   - A claim notes what a tensor of the model is for; two claims on one are a fault.
//
// A plan does not change after Make returned it. The package has no state; Make and
// Complete may be called by several goroutines, each with runners of its own.
package planner
