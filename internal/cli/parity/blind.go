package parity

import (
	"bytes"
	"slices"

	"tritonstateful/internal/cli/localserver"
	"tritonstateful/internal/onnx"
)

// What the requests of a check cannot show.
const (
	noteNoState = "the outputs are the same if each step begins with fresh states: these requests do not show whether states are kept; give real ones with --data, or more with --steps"
	noteAlike   = "all sequences have the same answers: these requests do not show whether sequences are mixed up; give real ones with --data"
	noteRandom  = "ONNX Runtime computes other outputs when it runs the same sequence again: the model is not deterministic"
)

// notes says what the script cannot show, because the answers that it wants would come from a wrong server, too. values are
// the inputs of the first lane by step.
func (c *checker) notes(runner onnx.Runner, values [][]value) []string {
	notes := []string{}
	want := c.script.want
	again, err := c.replay(runner, values, false)
	if err != nil || !sameAnswers(again, want[0]) {
		return append(notes, noteRandom)
	}
	pl := c.model.Plan
	if len(pl.States)+len(pl.Varying) > 0 && c.options.Steps > 1 {
		// A model that does not run without its states depends on them.
		if fresh, err := c.replay(runner, values, true); err == nil && sameAnswers(fresh, want[0]) {
			notes = append(notes, noteNoState)
		}
	}
	if len(want) > 1 && !slices.ContainsFunc(want[1:], func(lane [][]localserver.Output) bool { return !sameAnswers(lane, want[0]) }) {
		notes = append(notes, noteAlike)
	}
	return notes
}

// replay runs the first lane again. If fresh is true, each step begins as the first one does.
func (c *checker) replay(runner onnx.Runner, values [][]value, fresh bool) (answers [][]localserver.Output, err error) {
	var ref *reference
	for step := range values {
		if ref == nil || fresh {
			if ref, err = newReference(c.model, runner, c.id(0)); err != nil {
				return nil, err
			}
		}
		outputs, err := ref.step(values[step], step == 0, c.ends(step))
		if err != nil {
			return nil, err
		}
		answers = append(answers, outputs)
	}
	return answers, nil
}

// sameAnswers reports whether two sequences have the same bits in all outputs.
func sameAnswers(a, b [][]localserver.Output) bool {
	return slices.EqualFunc(a, b, func(x, y []localserver.Output) bool {
		return slices.EqualFunc(x, y, func(p, q localserver.Output) bool { return bytes.Equal(p.Data, q.Data) })
	})
}
