package planner

import (
	"fmt"

	"tritonstateful/backend/plan"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// controlWords are the values of derived_inputs that stand for the controls of
// sequence_batching, which the dynamic batcher does not have.
var controlWords = []string{"start", "not_start", "end", "ready", "correlation_id"}

// derivedControl is one of controlWords.
func (pl *planner) derivedControl(f *plan.Generated, info *onnx.TensorInfo, word string) error {
	if err := pl.perLane(f, info); err != nil {
		return err
	}
	defer pl.noteShared(f)
	values := [2]string{"0", "1"}
	switch word {
	case "correlation_id":
		f.Kind = plan.KindID
		return checkIDType(f.DType)
	case "start":
		f.Kind = plan.KindStart
	case "not_start":
		f.Kind, values = plan.KindStart, [2]string{"1", "0"}
	case "end":
		f.Kind = plan.KindEnd
	case "ready":
		f.Kind = plan.KindReady
	}
	for i := range values {
		var err error
		if f.Value[i], err = tensor.ParseElement(values[i], f.DType); err != nil {
			return fmt.Errorf("it is of type %v: want BOOL or a number", f.DType)
		}
	}
	return nil
}
