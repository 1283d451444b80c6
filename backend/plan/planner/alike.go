package planner

import (
	"fmt"
	"slices"
	"strings"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// byNames is the source of states that no one described: a guess, which every
// message about them calls one.
const byNames = "the names in the model"

// form is a way in which models name a state's output after its input. An input that
// matches the first pattern belongs to the output that the second gives.
type form struct{ input, output string }

// alike are the forms that there are. docs/states.md has the same table, with an example
// of each.
var alike = []form{
	{"*", "*_out"}, {"*", "out_*"}, {"*", "*_output"}, {"*", "output_*"},
	{"*", "*_next"}, {"*", "next_*"}, {"*_len", "*_next_len"},
	{"*", "*_new"}, {"*", "new_*"}, {"*", "*_updated"}, {"*", "updated_*"},
	{"*", "r_*"}, {"*", "*N"}, {"*", "*n"}, {"*0", "*n"},
	{"*_in", "*_out"}, {"in_*", "out_*"}, {"*_in_*", "*_out_*"}, {"*In", "*Out"}, {"*_In_*", "*_Out_*"},
	{"*_input", "*_output"}, {"input_*", "output_*"}, {"*i", "*o"},
	{"past_key_values*", "present*"}, {"past*", "present*"},
	{"prev_*", "next_*"}, {"prev_*", "new_*"}, {"prev_*", "*"}, {"*_prev", "*_next"}, {"*_prev", "*"}, {"old_*", "new_*"},
}

// mismatch is an input and an output that are named as a state, and do not match.
type mismatch struct{ in, out int } // positions in the signature

// namedAlike pairs inputs and outputs that nothing else claims by their names. An
// input with two possible outputs is left alone and named, and so is an output with
// two possible inputs, because nothing is guessed where names do not decide.
func (pl *planner) namedAlike() (specs []plan.StateSpec) {
	var unclear []string     // what is wrong, without what to write
	writers := map[int]int{} // the pair of each output, counted in specs
	for i := range pl.sig.Inputs {
		in := &pl.sig.Inputs[i]
		if pl.takenIn[i] != "" || in.Optional {
			continue
		}
		outputs, unfit := pl.outputsAlike(in)
		switch {
		case len(outputs) == 0:
			for _, out := range unfit {
				pl.mismatches = append(pl.mismatches, mismatch{i, out})
			}
			continue
		case len(outputs) > 1:
			unclear = append(unclear, fmt.Sprintf("input %q could be paired with any of the outputs %s: name it in state_pairs", in.Name, pl.outputNames(outputs)))
		}
		out := outputs[0]
		if at, taken := writers[out]; taken {
			unclear = append(unclear, fmt.Sprintf("output %q could be paired with any of the inputs %s, %s: name the state in state_pairs", pl.sig.Outputs[out].Name, specs[at].Input, in.Name))
			continue
		}
		writers[out] = len(specs)
		specs = append(specs, plan.StateSpec{Input: in.Name, Output: pl.sig.Outputs[out].Name, Source: byNames})
	}
	for _, text := range unclear {
		pl.fault("%s, for example %s", text, pairsParameter(specs))
	}
	return specs
}

// outputsAlike are the outputs that an input's name goes with: those that can be
// the next value of the same state, and those that cannot.
func (pl *planner) outputsAlike(in *onnx.TensorInfo) (fit, unfit []int) {
	for _, f := range alike {
		matches, ok := config.MatchPattern(f.input, in.Name)
		if !ok {
			continue
		}
		out := exactName(config.FillPattern(f.output, matches), pl.sig.Outputs)
		switch {
		case out < 0 || slices.Contains(fit, out) || slices.Contains(unfit, out):
		case oneState(in, &pl.sig.Outputs[out]):
			fit = append(fit, out)
		default:
			unfit = append(unfit, out)
		}
	}
	return fit, unfit
}

// oneState reports whether what a model says of an input and an output allows that
// one step writes the output and the next one reads it as the input. An output of
// which not even the rank is known may be anything.
func oneState(in, out *onnx.TensorInfo) bool {
	if in.DType != out.DType || in.DType == tensor.Bytes {
		return false
	}
	if out.Dims == nil {
		return true
	}
	if len(in.Dims) != len(out.Dims) {
		return false
	}
	for i, d := range in.Dims {
		if o := out.Dims[i]; d >= 0 && o >= 0 && d != o {
			return false
		}
	}
	return true
}

func (pl *planner) outputNames(outputs []int) string {
	names := make([]string, len(outputs))
	for i, out := range outputs {
		names[i] = pl.sig.Outputs[out].Name
	}
	return strings.Join(names, ", ")
}

// orNot is what to write if a pair that was guessed is no state; nothing is said of
// others.
func orNot(s *plan.StateSpec, all []plan.StateSpec) string {
	if s.Source != byNames {
		return ""
	}
	others := slices.DeleteFunc(slices.Clone(all), func(other plan.StateSpec) bool { return other.Input == s.Input })
	if len(others) == 0 {
		return fmt.Sprintf("; this pair was guessed from the names: if it is not a state, list %q in input", s.Input)
	}
	return fmt.Sprintf("; this pair was guessed from the names: if it is not a state, declare the others with %s", pairsParameter(others))
}

// nameHint is what the names would say of an input that nothing feeds.
func (pl *planner) nameHint(input int) string {
	for _, m := range pl.mismatches {
		if m.in == input {
			return "; " + pl.unlike(m)
		}
	}
	return ""
}

// unlike says why names alone make no state.
func (pl *planner) unlike(m mismatch) string {
	in, out := &pl.sig.Inputs[m.in], &pl.sig.Outputs[m.out]
	if in.DType != out.DType || in.DType == tensor.Bytes {
		return fmt.Sprintf("input %q and output %q are named like a state, but %v and %v do not match", in.Name, out.Name, in.DType, out.DType)
	}
	return fmt.Sprintf("input %q and output %q are named like a state, but %v and %v do not match", in.Name, out.Name, in.Dims, out.Dims)
}

// pairsText is specs as state_pairs has them.
func pairsText(specs []plan.StateSpec) string {
	pairs := make([]string, len(specs))
	for i := range specs {
		pairs[i] = fmt.Sprintf("<<<%s, %s>>>", specs[i].Input, specs[i].Output)
	}
	return strings.Join(pairs, " ")
}

// pairsParameter is the line of a configuration that says of specs what was guessed
// of them.
func pairsParameter(specs []plan.StateSpec) string {
	return parameterText("state_pairs", pairsText(specs))
}

// parameterText is a parameter as a configuration has it. The server's log escapes
// double quotes; these can be pasted from there too.
func parameterText(name, value string) string {
	return fmt.Sprintf("parameters { key: '%s' value { string_value: '%s' } }", name, value)
}
