package planner

import (
	"errors"
	"fmt"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/backend/plan/batchaxis"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// clientInputs plans the inputs that requests bring.
func (pl *planner) clientInputs() {
	for i := range pl.config.Inputs {
		c := &pl.config.Inputs[i]
		at := pl.indexOf("input", c.Name, pl.sig.Inputs)
		if at < 0 || !pl.claim(pl.takenIn, at, pl.sig.Inputs[at].Name, fmt.Sprintf("input %q", c.Name)) {
			continue
		}
		p := plan.IO{Index: at}
		if !pl.clientTensor("input", &p, c, &pl.sig.Inputs[at], pl.candidate.In[at]) {
			continue
		}
		if p.Axis == tensor.NoAxis || p.Optional {
			pl.plan.Shares = true
		}
		pl.plan.Inputs = append(pl.plan.Inputs, p)
	}
}

// clientOutputs plans the outputs that requests can ask for; some of them are of states.
func (pl *planner) clientOutputs() {
	for i := range pl.config.Outputs {
		c := &pl.config.Outputs[i]
		at := pl.indexOf("output", c.Name, pl.sig.Outputs)
		if at < 0 {
			continue
		}
		state, isState := pl.stateOfOutput(at)
		if !isState && !pl.claim(pl.takenOut, at, pl.sig.Outputs[at].Name, fmt.Sprintf("output %q", c.Name)) {
			continue
		}
		p := plan.IO{Index: at, State: state, IsState: isState}
		if !pl.clientTensor("output", &p, c, &pl.sig.Outputs[at], pl.candidate.Out[at]) {
			continue
		}
		if p.Axis == tensor.NoAxis {
			pl.unbatched(c.Name)
		}
		p.LanesAxis = pl.lanesAxis(&p, pl.candidate.Out[at])
		if p.LaneBytes() == 0 { // the file may say that there is nothing where the model writes something
			p.Varies, pl.plan.Varies = true, true
		}
		pl.plan.Outputs = append(pl.plan.Outputs, p)
	}
}

// indexOf finds a tensor of the configuration in the model. It returns -1, and notes the
// fault, where the model has no such tensor; kind is the word for it.
func (pl *planner) indexOf(kind, name string, infos []onnx.TensorInfo) int {
	at := onnx.TensorName(name, infos)
	if at < 0 {
		pl.fault("%s %q of the configuration is not in the model: its %ss are %s", kind, name, kind, onnx.Names(infos))
	}
	return at
}

// stateOfOutput returns the state that an output is of, if it is one; clients can then ask
// for it.
func (pl *planner) stateOfOutput(at int) (state int, is bool) {
	for i := range pl.plan.States {
		if pl.plan.States[i].Out == at {
			return i, true
		}
	}
	for i := range pl.plan.Varying {
		if pl.plan.Varying[i].Out == at {
			return len(pl.plan.States) + i, true
		}
	}
	return 0, false
}

// clientTensor fills in what inputs and outputs of requests have in common, and reports
// whether it found nothing wrong; kind is the word for the tensor in a fault.
func (pl *planner) clientTensor(kind string, p *plan.IO, c *config.TensorConfig, info *onnx.TensorInfo, found batchaxis.Axis) bool {
	p.EndsOnEmpty, p.Axis = pl.sig.EndsOnEmpty(), tensor.NoAxis
	p.IOTensor = onnx.IOTensor{Name: c.Name, Optional: c.Optional && info.Optional}
	if pl.hasNonsense(info) {
		return false
	}
	if err := pl.matchTensor(p, c, info, found); err != nil {
		pl.faultOf([]string{c.Name, info.Name}, "%s %q: %w", kind, c.Name, err)
		return false
	}
	p.AxisFrom = pl.axisFrom(p, info, found)
	if p.Axis != tensor.NoAxis && info.Dims[p.Axis] == 1 {
		pl.fixedAtOne(c.Name)
	}
	return true
}

// axisFrom says in words how the batch axis of an input or output was found.
func (pl *planner) axisFrom(p *plan.IO, info *onnx.TensorInfo, found batchaxis.Axis) string {
	_, given := pl.givenAxis(info)
	switch {
	case pl.config.MaxBatchSize == 0:
		return "max_batch_size is 0"
	case p.IsState:
		return "as its state has it"
	case given:
		return batchaxis.ByParameter
	case found.Known && found.How != "" && found.Index == p.Axis:
		return found.How
	case p.Axis == tensor.NoAxis && info.Dims.Fixed():
		return "its shape is fixed"
	default:
		return "dims of the configuration"
	}
}

// errScalar is about an input or output of the model without any axis.
var errScalar = errors.New("it has no axes, which the server accepts only with a batch: write max_batch_size: 1, and dims: [ 1 ] reshape: { shape: [ ] } for it")

// matchTensor compares what the configuration says of a tensor with the model, and sets
// type, shape, batch axis and layout.
func (pl *planner) matchTensor(p *plan.IO, c *config.TensorConfig, info *onnx.TensorInfo, found batchaxis.Axis) error {
	dtype, err := tensor.ParseDType(c.DataType)
	if err != nil {
		return err
	}
	if dtype != info.DType {
		return fmt.Errorf("data_type is %s in the configuration, the model has %s: write data_type: %s", c.DataType, info.DType.ConfigName(), info.DType.ConfigName())
	}
	p.DType = dtype
	if err := pl.matchDims(p, c.LaneDims(), info, found); err != nil {
		axis, given := pl.givenAxis(info)
		switch {
		case given && axis != tensor.NoAxis && info.Dims[axis] > 1:
			return fixedAxis(axis, info)
		case given && axis == tensor.NoAxis && pl.config.MaxBatchSize > 0 && !info.Dims.Fixed():
			return fmt.Errorf("dims are %v, but batch_axes says that no axis of the model's shape %v is the batch: write all of them, %s, or give the batch axis of %q in batch_axes", c.LaneDims(), info.Dims, dimsText(info.Dims), info.Name)
		case len(info.Dims) > 0:
			return fmt.Errorf("%w%s", err, pl.writeDims(p, c.LaneDims(), info, found))
		case pl.config.MaxBatchSize == 0:
			return errScalar
		default:
			return fmt.Errorf("%w; for a tensor without axes write dims: [ 1 ] reshape: { shape: [ ] }", err)
		}
	}
	settleShapes(p)
	if p.IsState {
		if s := pl.plan.StateAt(p.State); !s.Agrees(p) {
			return fmt.Errorf("dims are %v and the state %q has %v: want the extents of the state, or -1", c.LaneDims(), s.Input, s.Dims.Without(s.Axis))
		}
	}
	if dtype == tensor.Bytes || !p.Dims.Without(p.Axis).Fixed() {
		p.Varies, pl.plan.Varies = true, true
		if dtype == tensor.Bytes && p.Axis > 0 {
			return fmt.Errorf("its batch is axis %d of %v: strings need the batch at axis 0", p.Axis, info.Dims)
		}
		return nil
	}
	p.Layout, err = statebuffer.LayoutOf(p.Dims, p.Axis, dtype)
	return err
}
