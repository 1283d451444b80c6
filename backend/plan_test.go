package backend

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/backend/plan/planner"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnx/runnertest"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

// sig changes what the model file says. The default model has the inputs Input
// [4,batch,5], Accumulate_In [batch,5] and ResetSequence [batch,1], the outputs
// Output [4,batch,5] and Accumulate_Out [batch,5].
func sig(edit func(*onnx.Signature)) func(*setup) {
	return func(s *setup) {
		s.model = newAccumulator(s.memory, s.streams...)
		edit(&s.model.sig)
	}
}

func info(name string, dtype tensor.DType, dims ...int64) onnx.TensorInfo {
	return onnx.TensorInfo{Name: name, DType: dtype, Dims: dims, Symbols: make([]string, len(dims))}
}

// withoutSymbols is a model whose axes have no names.
func withoutSymbols(s *onnx.Signature) {
	for _, infos := range [][]onnx.TensorInfo{s.Inputs, s.Outputs} {
		for i := range infos {
			clear(infos[i].Symbols)
		}
	}
}

func configEdit(edit func(*config.Config)) func(*setup) { return func(s *setup) { edit(s.config) } }

// planByEvidence joins configuration and model by evidence alone. The error joins
// everything that is wrong.
func planByEvidence(cfg *config.Config, params *config.Parameters, sig *onnx.Signature) (*plan.Plan, error) {
	params = params.Clone()
	params.Verify = config.VerifyNever
	made, _, err := planner.Make(&planner.Source{Config: cfg, Parameters: params, Signature: sig})
	return made, err
}

// TestPlan: what loads, and runs.
func TestPlan(t *testing.T) {
	tests := []struct {
		name  string
		edits []func(*setup)
	}{
		{"axes without names", []func(*setup){sig(withoutSymbols)}},
		{"names of config tensors in another case", []func(*setup){configEdit(func(c *config.Config) { c.Inputs[0].Name, c.Outputs[0].Name = "INPUT", "output" })}},
		{"open extents that the configuration fixes", []func(*setup){sig(func(s *onnx.Signature) {
			s.Inputs[0].Dims[0], s.Outputs[0].Dims[0] = -1, -1
			s.Inputs[0].Symbols[0], s.Outputs[0].Symbols[0] = "seq", "seq"
		})}},
		{"state extent that only the output knows", []func(*setup){sig(func(s *onnx.Signature) { s.Inputs[1].Dims[1], s.Inputs[1].Symbols[1] = -1, "k" })}},
		{"an output that the configuration leaves out", []func(*setup){sig(func(s *onnx.Signature) {
			s.Outputs = append(s.Outputs, info("Extra", tensor.Int64, -1))
		})}},
		{"an input with a default that the configuration leaves out", []func(*setup){sig(func(s *onnx.Signature) {
			extra := info("Extra", tensor.Int64, -1)
			extra.Optional = true
			s.Inputs = append(s.Inputs, extra)
			s.Inputs[2], s.Inputs[3] = s.Inputs[3], s.Inputs[2]
		})}},
		{"pairs in the model's doc string", []func(*setup){param("state_pairs", ""), sig(func(s *onnx.Signature) {
			s.Description = "InputState OutputState <<<Accumulate_In, Accumulate_Out>>>"
		})}},
		{"controls that the model has no input for", []func(*setup){configEdit(func(c *config.Config) {
			c.Sequence.ControlInputs = append(c.Sequence.ControlInputs, config.ControlConfig{Name: "READY", Controls: []config.Control{{Kind: config.ControlReady}}})
		})}},
		{"reset of rank 1", []func(*setup){sig(func(s *onnx.Signature) {
			s.Inputs[2].Dims, s.Inputs[2].Symbols = tensor.Shape{-1}, []string{"batch"}
		})}},
		{"both controls in one entry", []func(*setup){configEdit(func(c *config.Config) {
			c.Sequence.ControlInputs[1].Controls = append(c.Sequence.ControlInputs[1].Controls, config.Control{Kind: config.ControlReady})
		})}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := load(t, tt.edits...)
			require.NoError(t, err)
			defer s.in.Close()
			if len(s.runner.sig.Inputs) > 3 {
				return // the accumulator cannot run this one
			}
			s.batch(startOf(1), startOf(2)).ok()
			s.batch(nextOf(2), nextOf(1)).ok()
		})
	}
}

// TestPlanRejects: each error names the tensor and says what to do.
func TestPlanRejects(t *testing.T) {
	none := func(*onnx.Signature) {}
	tests := []struct {
		name string
		edit func(*config.Config)
		sig  func(*onnx.Signature)
		want string
	}{
		{"input that the model lacks", func(c *config.Config) { c.Inputs[0].Name = "Inptu" }, none, `input "Inptu" of the configuration`},
		{"output that the model lacks", func(c *config.Config) { c.Outputs[0].Name = "Out" }, none, `output "Out" of the configuration`},
		{"type", func(c *config.Config) { c.Inputs[0].DataType = "TYPE_FP16" }, none, `input "Input": data_type is TYPE_FP16`},
		{"an output that is an input", func(c *config.Config) { c.Outputs[0].Name = "Input" }, func(s *onnx.Signature) { s.Outputs[0].Name = "Input" }, `both an input and an output`},
		{"type of an output", func(c *config.Config) { c.Outputs[0].DataType = "TYPE_INT32" }, none, `output "Output": data_type is TYPE_INT32`},
		{"no type", func(c *config.Config) { c.Inputs[0].DataType = "TYPE_FP33" }, none, `data type "TYPE_FP33" is unknown`},
		{"rank", func(c *config.Config) { c.Inputs[0].Dims = tensor.Shape{4, -1, 5, 1} }, none, `input "Input": dims are [4,-1,5,1]`},
		{"scalar", func(c *config.Config) { c.Inputs[0].Dims = tensor.Shape{} }, none, `input "Input": dims are []`},
		{"no axes at all, and no batch", func(c *config.Config) {
			c.MaxBatchSize, c.Inputs[0].Dims = 0, tensor.Shape{1}
		}, func(s *onnx.Signature) { s.Inputs[0].Dims, s.Inputs[0].Symbols = tensor.Shape{}, nil }, `write max_batch_size: 1, and dims: [ 1 ] reshape: { shape: [ ] } for it`},
		{"no axes at all", func(c *config.Config) {
			c.Inputs[0].Dims = tensor.Shape{1}
		}, func(s *onnx.Signature) { s.Inputs[0].Dims, s.Inputs[0].Symbols = tensor.Shape{}, nil }, `write dims: [ 1 ] reshape: { shape: [ ] }`},
		{"extent", func(c *config.Config) { c.Inputs[0].Dims = tensor.Shape{4, -1, 6} }, none, `input "Input": dims are [4,-1,6]`},
		{"extent, without the batch axis", func(c *config.Config) { c.Outputs[0].Dims = tensor.Shape{3, 5} }, none, `output "Output": dims are [3,5]`},
		{"fixed batch axis", func(c *config.Config) { c.Inputs[0].Dims = tensor.Shape{4, 3, 5} }, none, `input "Input": dims are [4,3,5]`},
		{"two inputs of one tensor", func(c *config.Config) {
			c.Inputs = append(c.Inputs, config.TensorConfig{Name: "INPUT", DataType: "TYPE_FP32", Dims: tensor.Shape{4, -1, 5}})
		}, none, `and also input "INPUT"`},
		{"a state that is an input", func(c *config.Config) {
			c.Inputs = append(c.Inputs, config.TensorConfig{Name: "Accumulate_In", DataType: "TYPE_FP32", Dims: tensor.Shape{-1, 5}})
		}, none, `and also state <<<Accumulate_In, Accumulate_Out>>>`},
		{"a control that is an input", func(c *config.Config) { c.Sequence.ControlInputs[0].Name = "Input" }, none, `tensor "Input" of the model is`},
		{"two controls of one tensor", func(c *config.Config) {
			c.Sequence.ControlInputs = append(c.Sequence.ControlInputs, config.ControlConfig{Name: resetName, Controls: []config.Control{{Kind: config.ControlReady}}})
		}, none, `and also the control CONTROL_SEQUENCE_READY`},
		{"unmapped reset", func(c *config.Config) { c.Sequence.ControlInputs = nil }, none, `map it with control_input { name: "ResetSequence" control [{ kind: CONTROL_SEQUENCE_START }] }`},
		{"unfed input", func(*config.Config) {}, func(s *onnx.Signature) { s.Inputs = append(s.Inputs, info("Extra", tensor.FP32, -1, 2)) }, `input "Extra" [-1,2] of the model`},
		{"pair without an input", func(c *config.Config) {
			c.Parameters["state_pairs"] = config.Value{String: "<<<Accumulate, Accumulate_Out>>>"}
		}, none, `state_pairs: "Accumulate" is not an input`},
		{"pair without an output", func(c *config.Config) {
			c.Parameters["state_pairs"] = config.Value{String: "<<<Accumulate_In, Accumulate>>>"}
		}, none, `state_pairs: "Accumulate" is not an output`},
		{"pair in another case", func(c *config.Config) {
			c.Parameters["state_pairs"] = config.Value{String: "<<<accumulate_in, Accumulate_Out>>>"}
		}, none, `state_pairs: "accumulate_in" is not an input`},
		{"state types", func(*config.Config) {}, func(s *onnx.Signature) { s.Outputs[1].DType = tensor.FP16 }, `state <<<Accumulate_In, Accumulate_Out>>>: the input is FP32`},
		{"state ranks", func(*config.Config) {}, func(s *onnx.Signature) { s.Outputs[1] = info("Accumulate_Out", tensor.FP32, -1, 1, 5) }, `the input's shape [-1,5] and the output's [-1,1,5] differ in rank`},
		{"state extents", func(*config.Config) {}, func(s *onnx.Signature) { s.Outputs[1].Dims[1] = 6 }, `the input's shape [-1,5] and the output's [-1,6] differ`},
		{"state axes", func(*config.Config) {}, func(s *onnx.Signature) {
			s.Inputs[1].Dims, s.Outputs[1].Dims = tensor.Shape{-1, -1}, tensor.Shape{-1, -1}
			s.Outputs[1].Symbols = []string{"", "batch"}
		}, `axis 1 of the output's shape [-1,-1]`},
		{"state with a batch that the output fixes", func(*config.Config) {}, func(s *onnx.Signature) { s.Outputs[1].Dims[0], s.Outputs[1].Symbols[0] = 1, "" }, `fixed in the output's shape [1,5]`},
		{"state of strings", func(*config.Config) {}, func(s *onnx.Signature) { s.Inputs[1].DType, s.Outputs[1].DType = tensor.Bytes, tensor.Bytes }, `it is of strings`},
		{"no state at all", func(c *config.Config) { delete(c.Parameters, "state_pairs") }, func(s *onnx.Signature) { s.Outputs[1].Name = "Sum" }, `could not find any state tensors`},
		{"states without sequences", func(c *config.Config) { c.Sequence = nil }, none, `sequence_batching is missing`},
		{"reset of the wrong type", func(*config.Config) {}, func(s *onnx.Signature) { s.Inputs[2].DType = tensor.Int8 }, `control input "ResetSequence" (CONTROL_SEQUENCE_START): the model's input is INT8`},
		{"reset of several elements", func(*config.Config) {}, func(s *onnx.Signature) { s.Inputs[2].Dims[1] = 5 }, `control input "ResetSequence": its shape`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, configEdit(tt.edit), sig(tt.sig))
			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, `loading instance "model_0": `)
			require.Equal(t, status.InvalidArg, status.CodeOf(err))
		})
	}
}

// TestAllPlanFaultsAtOnce: one load shows everything that does not fit.
func TestAllPlanFaultsAtOnce(t *testing.T) {
	_, err := load(t, configEdit(func(c *config.Config) {
		c.Inputs[0].DataType, c.Outputs[0].Name = "TYPE_INT8", "Out"
		c.Sequence.ControlInputs = nil
		c.Parameters["state_pairs"] = config.Value{String: "<<<a, b>>> <<<c, Accumulate_Out>>>"}
	}))
	for _, want := range []string{`input "Input": data_type`, `output "Out" of`, `"a" is not an input`, `"b" is not an output`, `"c" is not an input`, `input "ResetSequence"`} {
		require.ErrorContains(t, err, want)
	}
}

// TestConfigAndModelFaultsAtOnce: also what is wrong before the model is opened.
func TestConfigAndModelFaultsAtOnce(t *testing.T) {
	_, err := load(t, param("compute_precision", "int8"), slots(8, 8), param("max_candidate_sequence_use_ratio", "0.05"), configEdit(func(c *config.Config) { c.Inputs[0].DataType = "TYPE_INT8" }))
	require.ErrorContains(t, err, "parameter compute_precision")
	require.ErrorContains(t, err, "there are 0 slots, max_candidate_sequences 8 times")
	require.ErrorContains(t, err, `input "Input": data_type`)
}

// TestControlsInOneTensor: as in Triton, each of START, END, READY and CORRID takes the
// place of those before it, in whatever order they are written, and a warning says so.
func TestControlsInOneTensor(t *testing.T) {
	start := config.Control{Kind: config.ControlStart, Int32FalseTrue: []int32{0, 1}}
	for want, controls := range map[string][]config.Control{
		config.ControlEnd:   {{Kind: config.ControlEnd, Int32FalseTrue: []int32{0, 1}}, start},
		config.ControlReady: {start, {Kind: config.ControlReady}, {Kind: config.ControlEnd}},
	} {
		s := newServer(t, configEdit(func(c *config.Config) {
			c.Sequence.ControlInputs = []config.ControlConfig{{Name: resetName, Controls: controls}}
		}))
		require.Len(t, s.in.plan.Generated, 1)
		require.Equal(t, map[string]plan.Kind{config.ControlEnd: plan.KindEnd, config.ControlReady: plan.KindReady}[want], s.in.plan.Generated[0].Kind)
		lines := s.log.having(`WARN control_input "ResetSequence" has`)
		require.Len(t, lines, 1)
		require.Contains(t, lines[0], "its value is that of "+want+" alone")
	}
	require.Empty(t, newServer(t).log.having("controls in one tensor"))
}

// TestOptionalWithoutDefault: harmless where the input is always sent.
func TestOptionalWithoutDefault(t *testing.T) {
	s := newServer(t, configEdit(func(c *config.Config) { c.Inputs[0].Optional = true }))
	s.batch(startOf(1)).ok()
	s.batch(nextOf(1).with(func(r *Request) { r.Inputs[0] = Input{} })).want(`input "Input" is missing`)
	s.batch(nextOf(1)).ok()
}

// TestControlsOfEveryType: the model's type rules, the configuration's values
// are used where it has that type (B16, B18).
func TestControlsOfEveryType(t *testing.T) {
	tests := []struct {
		name    string
		dtype   tensor.DType
		control config.Control
		want    []float64 // of a continuing lane, a starting one
	}{
		{"BOOL by int32_false_true", tensor.Bool, config.Control{Int32FalseTrue: []int32{0, 1}}, []float64{0, 1}},
		{"BOOL by bool_false_true", tensor.Bool, config.Control{BoolFalseTrue: []bool{false, true}}, []float64{0, 1}},
		{"BOOL turned round", tensor.Bool, config.Control{BoolFalseTrue: []bool{true, false}}, []float64{1, 0}},
		{"BOOL by nothing", tensor.Bool, config.Control{}, []float64{0, 1}},
		{"INT32", tensor.Int32, config.Control{Int32FalseTrue: []int32{-3, 70_000}}, []float64{-3, 70_000}},
		{"FP32", tensor.FP32, config.Control{FP32FalseTrue: []float32{0.5, 2}}, []float64{0.5, 2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.control.Kind = config.ControlStart
			s := newServer(t, configEdit(func(c *config.Config) { c.Sequence.ControlInputs[0].Controls[0] = tt.control }), sig(func(s *onnx.Signature) { s.Inputs[2].DType = tt.dtype }))
			var runs [][]byte // the control in each
			s.in.runner = &wrapped{s.runner, func(inputs, _ []onnx.Tensor) error {
				runs = append(runs, slices.Clone(inputs[2].Data.Bytes))
				return nil
			}}
			s.in.Execute(&fakeBatch{t: t, answers: make([]answer, 1), requests: []Request{s.request(&fakeBatch{}, &ask{id: "1", start: true})}})
			s.in.Execute(&fakeBatch{t: t, answers: make([]answer, 2), requests: []Request{
				s.request(&fakeBatch{}, &ask{id: "1"}), s.request(&fakeBatch{}, &ask{id: "2", start: true}),
			}})
			require.Equal(t, tt.want[1], runnertest.Element(runs[0], tt.dtype, 0))
			require.Equal(t, tt.want, []float64{runnertest.Element(runs[1], tt.dtype, 0), runnertest.Element(runs[1], tt.dtype, 1)})
		})
	}
}
