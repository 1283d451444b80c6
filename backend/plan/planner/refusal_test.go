package planner

import (
	"errors"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnx/runnertest"
	"tritonstateful/internal/tensor"
)

var pastedLine = regexp.MustCompile(`(max_batch_size: 1 )?parameters \{ key: '(\w+)' value \{ string_value: '([^']*)' \} \}`)

// TestPastedLineDecides: with the line that a refusal prints, the model loads, and never is
// the same refusal read again.
func TestPastedLineDecides(t *testing.T) {
	stuck := func(inputs, outputs string) *runnertest.File {
		r := runnertest.NewFile(t, inputs, outputs)
		r.Runs = func(*onnx.Signature, []onnx.Tensor, []onnx.Tensor) error { return errors.New("it runs with nothing") }
		return r
	}
	mixing := func(inputs, outputs string) *runnertest.File { // y is the sum of all lanes
		r := runnertest.NewFile(t, inputs, outputs)
		r.Runs = func(sig *onnx.Signature, inputs, outputs []onnx.Tensor) error {
			runnertest.Allocate(&outputs[0], inputs[0].Shape...)
			runnertest.Fill(&outputs[0], runnertest.Sum(&inputs[0]))
			return nil
		}
		return r
	}
	for _, tt := range []struct {
		name  string
		model *runnertest.File
		lines []string
	}{
		{"an output of which nothing is known", stuck("x:FP32[?,?]", "y:FP32[?,?]"), []string{"batch_axes: * = 0"}},
		{"a tensor that is fixed", mixing("x:FP32[batch,?] bias:FP32[3]", "y:FP32[batch,?]"), []string{"max_batch_size: 1 batch_axes: * = 0"}},
		{"a fixed extent of 1 there", mixing("x:FP32[batch,?] bias:FP32[1,3]", "y:FP32[batch,?]"), []string{"max_batch_size: 1 batch_axes: x = 0; y = 0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := recurrenceConfig("FP32", false)
			if len(tt.model.Sig.Inputs) > 1 {
				cfg.Inputs = append(cfg.Inputs, config.TensorConfig{Name: "bias", DataType: "TYPE_FP32", Dims: tt.model.Sig.Inputs[1].Dims})
			}
			var seen []string
			for range 3 {
				_, _, err := proving(t, tt.model, nil, cfg, config.VerifyInferred)
				if err == nil {
					break
				}
				line := pastedLine.FindStringSubmatch(err.Error())
				require.NotNil(t, line, "%v", err)
				if line[1] != "" {
					cfg.MaxBatchSize = 1
				}
				cfg.Parameters[line[2]] = config.Value{String: line[3]}
				seen = append(seen, line[1]+line[2]+": "+line[3])
			}
			require.Equal(t, tt.lines, seen)
		})
	}
}

// TestEitherOfTheTwoServes: the parameter of the line serves without max_batch_size: 1, and
// requests share runs then; max_batch_size: 1 serves without the parameter where the model
// names the batch.
func TestEitherOfTheTwoServes(t *testing.T) {
	r := runnertest.NewFile(t, "x:FP32[batch,?]", "y:FP32[batch,?]")
	r.Runs = func(_ *onnx.Signature, inputs, outputs []onnx.Tensor) error {
		runnertest.Allocate(&outputs[0], inputs[0].Shape...)
		runnertest.Fill(&outputs[0], runnertest.Sum(&inputs[0]))
		return nil
	}
	cfg := recurrenceConfig("FP32", false)
	_, _, err := proving(t, r, nil, cfg, config.VerifyInferred)
	require.ErrorContains(t, err, "write max_batch_size: 1 parameters { key: 'batch_axes' value { string_value: '* = 0' } }, so that requests do not share runs, or the parameter alone if they may influence each other")
	cfg.Parameters["batch_axes"] = config.Value{String: "* = 0"}
	pl, _, err := proving(t, r, nil, cfg, config.VerifyInferred)
	require.NoError(t, err)
	require.Equal(t, 8, pl.MaxLanes)
	delete(cfg.Parameters, "batch_axes")
	cfg.MaxBatchSize = 1
	pl, proof, err := proving(t, r, nil, cfg, config.VerifyInferred)
	require.NoError(t, err)
	require.Equal(t, 1, pl.MaxLanes)
	require.Contains(t, proof.Warning, "requests run one at a time, because requests in a batch would not be independent")
}

// TestPastedInitialStateServesRight: where a state would start empty, the refusal offers one line.
// With it, runs show where the batch is. Axes that no run has proved are not offered: pasted, they
// would be served unproved.
func TestPastedInitialStateServesRight(t *testing.T) {
	for _, layers := range []int64{1, 2} {
		r := runnertest.NewFile(t, "x:FP32[?,?,4] s:FP32[?,?,4]", "y:FP32[?,?,4] s_out:FP32[?,?,4]")
		r.Runs = func(_ *onnx.Signature, inputs, outputs []onnx.Tensor) error { // over time, which is axis 0 of x
			x, s := &inputs[0], &inputs[1]
			if s.Shape[0] != layers || s.Shape[1] != x.Shape[1] {
				return errors.New("the shape of s is wrong")
			}
			runnertest.Allocate(&outputs[0], x.Shape...)
			runnertest.Allocate(&outputs[1], s.Shape...)
			each := x.Shape[1] * 4
			for at := range each {
				sum := runnertest.Element(s.Data.Bytes, tensor.FP32, at)
				for frame := range x.Shape[0] {
					sum += runnertest.Element(x.Data.Bytes, tensor.FP32, frame*each+at)
					runnertest.SetElement(outputs[0].Data.Bytes, tensor.FP32, frame*each+at, sum)
				}
				for layer := range layers {
					runnertest.SetElement(outputs[1].Data.Bytes, tensor.FP32, layer*each+at, sum)
				}
			}
			return nil
		}
		cfg := recurrenceConfig("FP32", true)
		cfg.Inputs[0].Dims, cfg.Outputs[0].Dims = tensor.Shape{-1, 4}, tensor.Shape{-1, 4}
		_, _, err := proving(t, r, nil, cfg, config.VerifyInferred)
		require.ErrorContains(t, err, `state "s" would start empty along axis`)
		lines := pastedLine.FindAllStringSubmatch(err.Error(), -1)
		require.Len(t, lines, 1, "%v", err)
		cfg.Parameters[lines[0][2]] = config.Value{String: lines[0][3]}
		pl, proof, err := proving(t, r, nil, cfg, config.VerifyInferred)
		require.NoError(t, err)
		require.Empty(t, proof.Warning)
		require.Equal(t, 1, pl.Inputs[0].Axis)
		require.Equal(t, 1, pl.Varying[0].Axis)
	}
}

// TestAxesShownWrongAreNotOffered: where the shapes contradict the axes, there is no line.
func TestAxesShownWrongAreNotOffered(t *testing.T) {
	r := runnertest.NewFile(t, "x:FP32[batch] s:FP32[batch]", "y:FP32[batch] s_out:FP32[batch]")
	r.Runs = func(sig *onnx.Signature, inputs, outputs []onnx.Tensor) error {
		for i := range outputs {
			lanes := inputs[i].Shape[0] + int64(i) // the state grows along what is called the batch
			runnertest.Allocate(&outputs[i], lanes)
		}
		return nil
	}
	cfg := recurrenceConfig("FP32", true)
	cfg.Inputs[0].Dims, cfg.Outputs[0].Dims = tensor.Shape{}, tensor.Shape{}
	_, _, err := proving(t, r, nil, cfg, config.VerifyInferred)
	require.ErrorContains(t, err, `output "s_out" has shape [2] for one request`)
	require.ErrorContains(t, err, `set the parameter batch_axes ("NAME = AXIS" or "NAME = none" for each tensor)`)
	require.NotRegexp(t, pastedLine, err.Error())
}

// TestLineOfTheLikeliest: of several axes that are not shown to hold, the line has those with
// which shapes are right, or with which the model runs at all.
func TestLineOfTheLikeliest(t *testing.T) {
	t.Run("a state that lanes share", func(t *testing.T) {
		r := runnertest.NewRecurrence(t, "x:FP32[?,?] s:FP32[?,1] all:FP32[2]", "y:FP32[?,?] s_out:FP32[?,1] all_out:FP32[2]", 0)
		r.Runs = func(sig *onnx.Signature, inputs, outputs []onnx.Tensor) error {
			if err := r.Compute(sig, []onnx.Tensor{inputs[0], {DType: tensor.FP32, Shape: inputs[1].Shape[:1], Data: inputs[1].Data}}, outputs[:2]); err != nil {
				return err
			}
			outputs[1].Shape = inputs[1].Shape.Clone()
			runnertest.Allocate(&outputs[2], 2)
			runnertest.Fill(&outputs[2], runnertest.Sum(&inputs[0])+runnertest.Sum(&inputs[2]))
			runnertest.Fill(&outputs[0], runnertest.Sum(&outputs[2]))
			return nil
		}
		cfg := recurrenceConfig("FP32", true)
		_, _, err := proving(t, r, nil, cfg, config.VerifyInferred)
		require.ErrorContains(t, err, "write parameters { key: 'batch_axes' value { string_value: 'x = 1; s = 0; y = 1' } }")
		cfg.Parameters["batch_axes"] = config.Value{String: "x = 1; s = 0; y = 1"}
		p, _, err := proving(t, r, nil, cfg, config.VerifyInferred)
		require.NoError(t, err)
		require.Equal(t, 1, p.MaxLanes, "no advice to write max_batch_size: 1 is needed")
	})
	t.Run("a batch of 1 in the model", func(t *testing.T) {
		r := runnertest.NewFile(t, "x:FP32[s3,1] of:INT64[]", "y:FP32[s3,1]")
		r.Runs = func(sig *onnx.Signature, inputs, outputs []onnx.Tensor) error {
			if inputs[0].Shape[0] < 3 {
				return errors.New("too short")
			}
			runnertest.Allocate(&outputs[0], inputs[0].Shape...)
			copy(outputs[0].Data.Bytes, inputs[0].Data.Bytes)
			return nil
		}
		cfg := recurrenceConfig("FP32", false)
		cfg.MaxBatchSize = 1
		cfg.Inputs[0].Dims, cfg.Outputs[0].Dims = tensor.Shape{-1, 1}, tensor.Shape{-1, 1}
		cfg.Inputs = append(cfg.Inputs, config.TensorConfig{Name: "of", DataType: "TYPE_INT64", Dims: tensor.Shape{1}, Reshape: &config.Reshape{}})
		_, _, err := proving(t, r, nil, cfg, config.VerifyInferred)
		require.ErrorContains(t, err, "if it has none, write parameters { key: 'batch_axes' value { string_value: '* = none' } }")
		cfg.Parameters["batch_axes"] = config.Value{String: "* = none"}
		pl, _, err := proving(t, r, nil, cfg, config.VerifyInferred)
		require.NoError(t, err)
		require.Equal(t, tensor.NoAxis, pl.Inputs[0].Axis)
	})
}

// TestStateWithoutABatchIsServedSingly: batch_axes says that a state has none, and then there
// are no lanes that could mix.
func TestStateWithoutABatchIsServedSingly(t *testing.T) {
	r := runnertest.NewFile(t, "x:FP32[batch] s:FP32[heads]", "y:FP32[batch] s_out:FP32[heads]")
	r.Runs = func(sig *onnx.Signature, inputs, outputs []onnx.Tensor) error {
		lanes := inputs[0].Shape[0]
		for i, n := range []int64{lanes, 4 * lanes} {
			runnertest.Allocate(&outputs[i], n)
			runnertest.Fill(&outputs[i], runnertest.Sum(&inputs[0]))
		}
		return nil
	}
	for _, most := range []int{1, 8} {
		cfg := recurrenceConfig("FP32", true)
		cfg.MaxBatchSize = most
		cfg.Inputs[0].Dims, cfg.Outputs[0].Dims = tensor.Shape{}, tensor.Shape{}
		cfg.Parameters["batch_axes"] = config.Value{String: "s = none; s_out = none"}
		cfg.Parameters["initial_states"] = config.Value{String: "s = 0[4]"}
		pl, proof, err := proving(t, r, nil, cfg, config.VerifyInferred)
		require.NoError(t, err)
		require.Empty(t, proof.Warning)
		require.Equal(t, 1, pl.MaxLanes)
		require.Equal(t, 0, pl.Inputs[0].Axis)
	}
}
