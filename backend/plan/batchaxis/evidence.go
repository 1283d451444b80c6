package batchaxis

import (
	"fmt"
	"slices"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// byBatchNames goes by axes that have a name of batches. Several such names in one
// tensor are told apart by how many tensors carry them.
func (e *evidence) byBatchNames() {
	axes := map[int]int{}
	weight, everywhere := 0, false
	for _, i := range e.open {
		info := &e.sig.Inputs[i]
		most, tie := 0, false
		for axis, symbol := range info.Symbols {
			if AxisNamed(info, symbol) != axis || !IsBatchName(symbol) {
				continue
			}
			switch n := e.carriers(symbol); {
			case n > most:
				axes[i], most, tie = axis, n, false
			case n == most:
				tie = true
			}
		}
		if tie {
			delete(axes, i)
			continue
		}
		weight = max(weight, most)
		if axis, ok := axes[i]; ok {
			everywhere = everywhere || e.everywhere(info.Symbols[axis])
		}
	}
	if len(axes) == 0 {
		return
	}
	r := ByBatchName
	if slices.ContainsFunc(e.open, func(i int) bool { _, named := axes[i]; return !named && !e.isGenerated(i) }) || e.contradicted() {
		r, weight = ByOtherName, weight+len(e.sig.Inputs)+len(e.sig.Outputs) // before all other names
	}
	e.completed(r, weight, axes, func(c *Candidate) { c.Everywhere, c.LongName = everywhere, e.longNames(axes) })
}

// longNames reports whether the names at these axes are longer than a letter.
func (e *evidence) longNames(axes map[int]int) bool {
	for i, axis := range axes {
		if len(e.sig.Inputs[i].Symbols[axis]) < 2 {
			return false
		}
	}
	return true
}

// contradicted reports whether an output has the name of an input's axis, which is not a
// length, and no name of batches.
func (e *evidence) contradicted() bool {
	others := map[string]bool{}
	for i := range e.sig.Inputs {
		for _, symbol := range e.sig.Inputs[i].Symbols {
			others[symbol] = symbol != "" && !IsBatchName(symbol) && !isLengthName(symbol)
		}
	}
	return slices.ContainsFunc(e.sig.Outputs, func(out onnx.TensorInfo) bool {
		return e.config.CanRequest(out.Name) && !slices.ContainsFunc(out.Symbols, IsBatchName) &&
			slices.ContainsFunc(out.Symbols, func(symbol string) bool { return others[symbol] })
	})
}

// byMarks goes by dims that name every axis of the model, with -1 for the batch, as
// configurations of NVIDIA's backend do, and by dims that leave out the only open axis if
// that has the name of a length.
func (e *evidence) byMarks() {
	axes := map[int]int{}
	for _, input := range e.config.Inputs {
		i := onnx.TensorName(input.Name, e.sig.Inputs)
		dims := input.LaneDims()
		if i < 0 || !slices.Contains(e.open, i) || e.config.MaxBatchSize == 0 {
			continue
		}
		info := &e.sig.Inputs[i]
		if open := OnlyOpenAxis(info.Dims); open != tensor.NoAxis && isLengthName(info.Symbols[open]) && slices.Equal(dims, info.Dims.Without(open)) {
			axes[i] = open
		}
		if len(dims) != len(info.Dims) {
			continue
		}
		if axis := OnlyOpenAxis(dims); axis != tensor.NoAxis && info.Dims[axis] < 0 && !isLengthName(info.Symbols[axis]) {
			axes[i] = axis
		}
	}
	for i, axis := range axes {
		for _, other := range e.open {
			if at := AxisNamed(&e.sig.Inputs[other], e.sig.Inputs[i].Symbols[axis]); at != tensor.NoAxis && e.sig.Inputs[i].Symbols[axis] != "" {
				if _, marked := axes[other]; !marked {
					axes[other] = at
				}
			}
		}
	}
	if len(axes) > 0 {
		e.completed(ByBatchName, 0, axes, nil)
	}
}

// byOtherNames goes by each other name. A length is on many tensors too, so that runs
// have to show which name is the batch's.
func (e *evidence) byOtherNames() {
	var symbols []string
	for _, i := range e.open {
		for _, symbol := range e.sig.Inputs[i].Symbols {
			if symbol != "" && !IsBatchName(symbol) && !isLengthName(symbol) && !slices.Contains(symbols, symbol) {
				symbols = append(symbols, symbol)
			}
		}
	}
	const most = 8
	slices.SortStableFunc(symbols, func(a, b string) int { return e.carriers(b) - e.carriers(a) })
	for _, symbol := range symbols[:min(len(symbols), most)] {
		axes := map[int]int{}
		for _, i := range e.open {
			if at := AxisNamed(&e.sig.Inputs[i], symbol); at != tensor.NoAxis {
				axes[i] = at
			}
		}
		if len(axes) > 0 {
			e.completed(ByOtherName, e.carriers(symbol), axes, nil)
		}
	}
}

// completed adds the candidates that have these batch axes; inputs that are not among
// them have theirs where it is natural, or else at their first or last open axis.
func (e *evidence) completed(r Rank, weight int, axes map[int]int, note func(*Candidate)) {
	rests := []func(int) Axis{e.natural, e.front(0), e.back(0)}
	for _, rest := range rests {
		c := e.add(r, weight, func(i int) Axis {
			axis, ok := axes[i]
			if !ok {
				return rest(i)
			}
			info := &e.sig.Inputs[i]
			switch symbol := info.Symbols[axis]; {
			case symbol != "":
				return Axis{axis, true, fmt.Sprintf("axis %q", symbol)}
			case len(OpenAxes(info)) == 1:
				return Axis{axis, true, "its only dynamic axis"}
			case e.implicit(info):
				return Axis{axis, true, "the first axis, as Triton has it"}
			default:
				return Axis{axis, true, FoundByRuns}
			}
		})
		if c != nil && note != nil {
			note(c)
		}
	}
}

// natural is the batch axis of an input on which no name says it: the only open
// one, if it has no name, and the first one of Triton's implicit states.
func (e *evidence) natural(input int) Axis {
	info := &e.sig.Inputs[input]
	open := OpenAxes(info)
	switch {
	case len(open) == 1 && info.Symbols[open[0]] == "":
		return Axis{open[0], true, "its only dynamic axis"}
	case open[0] == 0 && e.implicit(info):
		return Axis{0, true, "the first axis, as Triton has it"}
	case hasNamedAxis(info):
		return Axis{tensor.NoAxis, true, "none of its names is the batch's"}
	default:
		return Axis{tensor.NoAxis, true, "no axis follows the batch"}
	}
}

// asTriton takes the outermost axis of every input where states are listed as those of
// Triton's implicit state: with it nothing else is possible.
func (e *evidence) asTriton() {
	axes := map[int]int{}
	listed := false
	for _, i := range e.open {
		if info := &e.sig.Inputs[i]; info.Dims[0] < 0 {
			axes[i] = 0
			listed = listed || e.implicit(info)
		}
	}
	if listed {
		e.completed(ByBatchName, 0, axes, nil)
	}
}

// implicit reports whether an input is listed as one of Triton's implicit states, with
// the dims that leave out the batch.
func (e *evidence) implicit(info *onnx.TensorInfo) bool {
	return e.config.Sequence != nil && e.config.MaxBatchSize > 0 && slices.ContainsFunc(e.config.Sequence.States, func(s config.StateConfig) bool {
		return s.InputName == info.Name && len(s.Dims) == len(info.Dims)-1
	})
}

// front takes the k-th open axis of an input, or the last that it has; lengths by their
// names do not count.
func (e *evidence) front(k int) func(int) Axis {
	return e.choose(func(open []int) int { return open[min(k, len(open)-1)] })
}

// back is front, counted from the innermost axis.
func (e *evidence) back(k int) func(int) Axis {
	return e.choose(func(open []int) int { return open[max(len(open)-1-k, 0)] })
}

// choose takes one of the open axes of an input that are no lengths by their names.
func (e *evidence) choose(of func(open []int) int) func(int) Axis {
	return func(input int) Axis {
		info := &e.sig.Inputs[input]
		open := slices.DeleteFunc(OpenAxes(info), func(axis int) bool { return isLengthName(info.Symbols[axis]) })
		if len(open) == 0 {
			return Axis{tensor.NoAxis, true, "its names are those of lengths"}
		}
		return Axis{of(open), true, FoundByRuns}
	}
}

// byPositions goes by the position among the open axes, whatever these are called.
func (e *evidence) byPositions() {
	most := 0
	for _, i := range e.open {
		most = max(most, len(OpenAxes(&e.sig.Inputs[i])))
	}
	if e.unnamed() {
		e.add(ByPosition, 0, e.natural)
	}
	for k := range most {
		e.add(ByPosition, 0, e.front(k))
		e.add(ByPosition, 0, e.back(k))
	}
}

// unnamed reports whether no open input names an axis.
func (e *evidence) unnamed() bool {
	return !slices.ContainsFunc(e.open, func(i int) bool { return hasNamedAxis(&e.sig.Inputs[i]) })
}

// fixedAtOne reports whether every input with an open axis has an outermost axis of
// extent 1, and none a name of batches: then the exporter has fixed the batch.
func (e *evidence) fixedAtOne() bool {
	for _, i := range e.open {
		info := &e.sig.Inputs[i]
		if info.Dims[0] != 1 || slices.ContainsFunc(info.Symbols, IsBatchName) {
			return false
		}
	}
	return true
}

// none adds the candidate in which no open axis is the batch. It is the last one also
// where it is among the first: by then runs may have shown what else no axis is.
func (e *evidence) none(r Rank) {
	if c := e.add(WithoutBatch, 0, func(int) Axis { return Axis{tensor.NoAxis, true, "no axis follows the batch"} }); c != nil {
		c.Rank = r
	}
}
