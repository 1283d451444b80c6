package planner

import (
	"fmt"
	"slices"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/backend/plan/batchaxis"
	"tritonstateful/internal/tensor"
)

// refuseLengthPerElement finds inputs that would get one number for each sequence although
// they have a dynamic axis next to the batch: their models expect a number for each element
// along it, such as a mask or positions.
func (pl *planner) refuseLengthPerElement() {
	for i := range pl.plan.Generated {
		g := &pl.plan.Generated[i]
		if g.Kind != plan.KindSteps && g.Kind != plan.KindLengthBefore && g.Kind != plan.KindLengthAfter {
			continue
		}
		info := &pl.sig.Inputs[g.Index]
		open := slices.DeleteFunc(batchaxis.OpenAxes(info), func(axis int) bool { return axis == g.Axis })
		if len(open) == 0 || g.Axis == tensor.NoAxis && len(open) == 1 {
			continue
		}
		input := "INPUT"
		if g.Kind != plan.KindSteps {
			l := &pl.plan.Lengths[g.Length]
			if input = l.Name; l.Axis != tensor.NoAxis {
				input += fmt.Sprintf(":%d", l.Axis)
			}
		}
		remedy := fmt.Sprintf("for positions write '%s = positions(%s)'", g.Name, input)
		if states := pl.varyingNames(); len(states) > 0 {
			remedy += fmt.Sprintf(", for a mask '%s = mask(%s, %s)'", g.Name, config.CommonPattern(states), input)
		}
		pl.fault("parameter derived_inputs: input %q: %v is one number for each sequence, but axis %d of its shape %v is dynamic: %s", g.Name, g.Kind, open[0], info.Dims, remedy)
	}
}

// varyingNames are the inputs of the states that vary.
func (pl *planner) varyingNames() []string {
	names := make([]string, len(pl.plan.Varying))
	for i := range pl.plan.Varying {
		names[i] = pl.plan.Varying[i].Input
	}
	return names
}
