// Package capacity finds out what memory a number of sequences takes, and what a state store would have to write for them.
// It measures where it can: the model is loaded in this process, sequences run on it, and what grows is read from the
// system. Only the sequences beyond those are extrapolated.
//
//	plan, err := capacity.Measure(model, capacity.Tools{Open: runtime.Open, Trim: runtime.Trim}, capacity.Options{Sequences: 2000, Steps: 50})
package capacity
