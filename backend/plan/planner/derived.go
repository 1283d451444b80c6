package planner

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tritonstateful/backend/plan"
	"tritonstateful/backend/plan/batchaxis"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// A summand before or after a function: 16 + steps, length_before(x) - 1.
var (
	summandBefore = regexp.MustCompile(`^([+-]?\s*\d+)\s*\+\s*(.*)$`)
	summandBehind = regexp.MustCompile(`^(.*[^\s+-])\s*([+-]\s*\d+)$`)
)

// summand parts a derived value into its function and the number that is added. A
// number cannot be distinguished from a part of a name in parentheses, so it has to stand
// outside of them.
func summand(text string) (function string, plus int64, err error) {
	function = text
	number := ""
	if m := summandBefore.FindStringSubmatch(text); m != nil {
		number, function = m[1], m[2]
	} else if m := summandBehind.FindStringSubmatch(text); m != nil {
		function, number = m[1], m[2]
	}
	if number == "" {
		return function, 0, nil
	}
	plus, err = strconv.ParseInt(strings.Join(strings.Fields(number), ""), 10, 64)
	if err != nil {
		return function, 0, fmt.Errorf("%q: %q is not a valid summand: want a 64-bit integer", text, number)
	}
	return function, plus, nil
}

// derived is the word for a control; or steps, length_before(TENSOR), length_after(INPUT) or
// positions(INPUT), with or without a summand; or mask(STATES, INPUT). A tensor may be followed
// by a colon and an axis.
func (pl *planner) derived(f *plan.Generated, info *onnx.TensorInfo, text string) error {
	if !pl.sequences() {
		return fmt.Errorf("it is about sequences, but sequence_batching is missing: want that, or dynamic_batching { }")
	}
	if word := strings.TrimSpace(text); slices.Contains(controlWords, word) {
		return pl.derivedControl(f, info, word)
	}
	if argument, ok := strings.CutPrefix(text, "mask("); ok {
		argument, ok = strings.CutSuffix(strings.TrimSpace(argument), ")")
		if !ok {
			return fmt.Errorf("%q: want mask(STATES) or mask(STATES, INPUT) and nothing after it", text)
		}
		return pl.mask(f, info, argument)
	}
	function, plus, err := summand(text)
	if err != nil {
		return err
	}
	argument, each := strings.CutPrefix(function, "positions(")
	if each {
		err = pl.positions(f, info, argument)
	} else {
		err = pl.perLane(f, info)
	}
	if err != nil {
		return err
	}
	if _, err := tensor.ParseElement("0", f.DType); err != nil || f.DType == tensor.Bool {
		return fmt.Errorf("it is of type %v: want a number", f.DType)
	}
	if _, err := tensor.ParseElement(strconv.FormatInt(plus, 10), f.DType); err != nil {
		return fmt.Errorf("%q: the summand: %w", text, err)
	}
	f.Plus = plus
	if !each {
		if err := pl.counted(f, function, text); err != nil {
			return err
		}
	}
	pl.noteShared(f)
	return nil
}

// counted is a function without its summand.
func (pl *planner) counted(f *plan.Generated, function, text string) error {
	name, argument, call := strings.Cut(function, "(")
	switch {
	case function == "steps":
		f.Kind = plan.KindSteps
		return nil
	case name == "length_before" && call:
		f.Kind = plan.KindLengthBefore
	case name == "length_after" && call:
		f.Kind = plan.KindLengthAfter
	default:
		return fmt.Errorf("%q: want steps, length_before(INPUT), length_before(OUTPUT), length_after(INPUT), positions(INPUT), each with an optional integer summand, mask(STATES, INPUT), or one of %s", text, strings.Join(controlWords, ", "))
	}
	argument, ok := strings.CutSuffix(strings.TrimSpace(argument), ")")
	if !ok {
		return fmt.Errorf("%q has no closing parenthesis", text)
	}
	var err error
	f.Length, err = pl.lengthOf(argument)
	return err
}

// noteShared notes that an input without a batch axis is for all lanes of a run, which
// takes only requests that get the same then. Correlation IDs never are the same.
func (pl *planner) noteShared(f *plan.Generated) {
	switch {
	case f.Axis != tensor.NoAxis:
	case f.Kind == plan.KindID:
		pl.unbatched(f.Name)
	default:
		pl.plan.Shares = true
	}
}

// lengthOf is the position of the length source that is written TENSOR or TENSOR:AXIS,
// which is added if it is new. Exporters put colons into names, x:0 or onnx::Slice_3:
// what is a name as a whole has no axis, and else the last colon is the one before it.
func (pl *planner) lengthOf(text string) (at int, err error) {
	source := plan.Length{Name: strings.TrimSpace(text), Axis: tensor.NoAxis}
	isName := onnx.TensorName(source.Name, pl.sig.Inputs) >= 0 || onnx.TensorName(source.Name, pl.sig.Outputs) >= 0
	if colon := strings.LastIndexByte(source.Name, ':'); colon >= 0 && !isName {
		axis := strings.TrimSpace(source.Name[colon+1:])
		if source.Axis, err = strconv.Atoi(axis); err != nil || source.Axis < 0 {
			return 0, fmt.Errorf("%q: want an axis counted from 0 after the colon", source.Name)
		}
		source.Name = strings.TrimSpace(source.Name[:colon])
	}
	if at = slices.Index(pl.plan.Lengths, source); at < 0 {
		at = len(pl.plan.Lengths)
		pl.plan.Lengths = append(pl.plan.Lengths, source)
	}
	return at, nil
}

// resolveLengths finds the tensors that lengths are taken from, once all are planned.
func (pl *planner) resolveLengths() {
	for i := range pl.plan.Lengths {
		l := &pl.plan.Lengths[i]
		dims, batch, found := pl.lengthTensor(l)
		kind := "input"
		switch {
		case !found && pl.faulty[l.Name]:
			continue
		case !found:
			pl.fault("parameter derived_inputs: %q is not an input of the configuration, nor an output of it or of a state", l.Name)
			continue
		case l.IsOutput && pl.ahead(i):
			pl.fault("parameter derived_inputs: %q is an output: its length is known only after the step; length_before(%s) gives its length in the previous steps", l.Name, l.Name)
			continue
		case l.IsOutput:
			kind = "output"
		}
		if l.Axis == tensor.NoAxis {
			l.Axis = batchaxis.OnlyOpenAxis(dims)
		}
		if l.Axis == tensor.NoAxis || l.Axis >= len(dims) || l.Axis == batch {
			pl.fault("parameter derived_inputs: say which axis of %s %q %v is its length, for example length_before(%s:1)", kind, l.Name, dims, l.Name)
		}
	}
}

// lengthTensor finds the tensor of a length, its extents and its batch axis.
func (pl *planner) lengthTensor(l *plan.Length) (dims tensor.Shape, batch int, found bool) {
	named := func(p plan.IO) bool { return p.Name == l.Name }
	if i := slices.IndexFunc(pl.plan.Inputs, named); i >= 0 {
		p := &pl.plan.Inputs[i]
		l.Index, l.Input = p.Index, i
		return p.Dims, p.Axis, true
	}
	l.IsOutput = true
	if i := slices.IndexFunc(pl.plan.Outputs, named); i >= 0 {
		p := &pl.plan.Outputs[i]
		l.Index = p.Index
		return p.Dims, p.Axis, true
	}
	for _, states := range [][]plan.State{pl.plan.States, pl.plan.Varying} {
		if i := slices.IndexFunc(states, func(s plan.State) bool { return s.Output == l.Name }); i >= 0 {
			s := &states[i]
			l.Index = s.Out
			return pl.sig.Outputs[s.Out].Dims.With(s.Axis, 1), s.Axis, true
		}
	}
	return nil, tensor.NoAxis, false
}

// ahead reports whether some input needs a length before the step is over.
func (pl *planner) ahead(length int) bool {
	return slices.ContainsFunc(pl.plan.Generated, func(f plan.Generated) bool {
		return (f.Kind == plan.KindLengthAfter || f.Kind == plan.KindPositions) && f.Length == length || f.Mask != nil && f.Mask.Length == length
	})
}
