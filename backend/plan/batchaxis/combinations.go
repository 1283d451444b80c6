package batchaxis

import (
	"fmt"
	"slices"

	"tritonstateful/internal/tensor"
)

// combinationsMost bounds the candidates that are combinations, each of which is run.
const combinationsMost = 64

// byCombinations takes each open axis of each input with each of the others, for models whose
// tensors have the batch at different positions, and no name that says so. Where these are
// too many, inputs of one type and shape have it at the same axis, as the caches of all the
// layers of a model have.
func (e *evidence) byCombinations() {
	var each, alike [][]int // groups of inputs that have the batch at the same axis
	for _, i := range e.open {
		each = append(each, []int{i})
		same := slices.IndexFunc(alike, func(group []int) bool {
			a, b := &e.sig.Inputs[group[0]], &e.sig.Inputs[i]
			return a.DType == b.DType && a.Dims.Equal(b.Dims) && slices.Equal(e.mayBeBatch(group[0]), e.mayBeBatch(i))
		})
		if same < 0 {
			alike = append(alike, []int{i})
		} else {
			alike[same] = append(alike[same], i)
		}
	}
	for _, groups := range [][][]int{each, alike} {
		if e.combinations(groups) <= combinationsMost {
			e.combine(groups)
			return
		}
	}
}

// mayBeBatch are the axes of an input that a combination takes: those that a name of batches
// stands at, or else all open ones that are no lengths by their names.
func (e *evidence) mayBeBatch(input int) []int {
	info := &e.sig.Inputs[input]
	open := OpenAxes(info)
	named := slices.DeleteFunc(slices.Clone(open), func(axis int) bool { return !IsBatchName(info.Symbols[axis]) })
	if len(named) > 0 {
		return named
	}
	return slices.DeleteFunc(open, func(axis int) bool { return isLengthName(info.Symbols[axis]) })
}

// combinations is how many there are, or more than combinationsMost.
func (e *evidence) combinations(groups [][]int) int {
	n := 1
	for _, group := range groups {
		if n *= max(len(e.mayBeBatch(group[0])), 1); n > combinationsMost {
			break
		}
	}
	return n
}

// combine adds the combinations of the axes of groups.
func (e *evidence) combine(groups [][]int) {
	for number := range e.combinations(groups) {
		axes := map[int]Axis{}
		for _, group := range groups {
			choices := e.mayBeBatch(group[0])
			for _, i := range group {
				axes[i] = Axis{tensor.NoAxis, true, "its names are those of lengths"}
				if len(choices) == 0 {
					continue
				}
				axis := choices[number%len(choices)]
				axes[i] = Axis{axis, true, FoundByRuns}
				if symbol := e.sig.Inputs[i].Symbols[axis]; symbol != "" {
					axes[i] = Axis{axis, true, fmt.Sprintf("axis %q", symbol)}
				}
			}
			number /= max(len(choices), 1)
		}
		e.add(ByCombination, 0, func(i int) Axis { return axes[i] })
	}
}
