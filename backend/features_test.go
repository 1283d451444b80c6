package backend

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnx/runnertest"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// send executes requests as they are.
func send(t *testing.T, in *Instance, requests ...Request) []answer {
	t.Helper()
	b := &fakeBatch{t: t, requests: requests, answers: make([]answer, len(requests))}
	var clock clockwork
	clock.wind(in)
	in.Execute(b)
	clock.run(in, in.server().Clock())
	return b.answers
}

// succeed executes requests none of which may fail.
func succeed(t *testing.T, in *Instance, requests ...Request) []answer {
	t.Helper()
	answers := send(t, in, requests...)
	for i := range answers {
		require.NoError(t, answers[i].err, "request %d", i)
	}
	return answers
}

// int32s is a tensor of numbers.
func int32s(numbers ...int32) (data []byte) {
	for _, n := range numbers {
		data = binary.NativeEndian.AppendUint32(data, uint32(n))
	}
	return data
}

func numbers(data []byte) (all []int32) {
	for i := 0; i+4 <= len(data); i += 4 {
		all = append(all, int32(binary.NativeEndian.Uint32(data[i:])))
	}
	return all
}

func intInput(shape tensor.Shape, values ...int32) []Input {
	return []Input{{Present: true, DType: tensor.Int32, Shape: shape, Data: int32s(values...)}}
}

// cacheModel has one state that grows by the input: Output is all that was sent.
func cacheModel() *scripted {
	s := &scripted{sig: onnx.Signature{
		Inputs:  []onnx.TensorInfo{info("Input", tensor.Int32, -1, -1), info("Cache", tensor.Int32, -1, -1)},
		Outputs: []onnx.TensorInfo{info("Output", tensor.Int32, -1, -1), info("NewCache", tensor.Int32, -1, -1)},
	}}
	for _, infos := range [][]onnx.TensorInfo{s.sig.Inputs, s.sig.Outputs} {
		for i := range infos {
			infos[i].Symbols = []string{"batch", "length" + infos[i].Name}
		}
	}
	s.run = func(inputs, outputs []onnx.Tensor) error {
		lanes, old, added := inputs[0].Shape[0], inputs[1].Shape[1], inputs[0].Shape[1]
		if inputs[1].Shape[0] != lanes {
			return errors.New("batches differ")
		}
		var all []byte
		for lane := range lanes {
			all = append(all, inputs[1].Data.Bytes[4*lane*old:4*(lane+1)*old]...)
			all = append(all, inputs[0].Data.Bytes[4*lane*added:4*(lane+1)*added]...)
		}
		for i := range outputs {
			outputs[i].Data = statebuffer.Block{Bytes: all, Size: int64(len(all))}
			outputs[i].Shape = tensor.Shape{lanes, old + added}
		}
		return nil
	}
	return s
}

func cacheConfig() *config.Config {
	return &config.Config{
		Name: "model", MaxBatchSize: 4,
		Inputs:   []config.TensorConfig{{Name: "Input", DataType: "TYPE_INT32", Dims: tensor.Shape{-1}}},
		Outputs:  []config.TensorConfig{{Name: "Output", DataType: "TYPE_INT32", Dims: tensor.Shape{-1}}},
		Sequence: &config.SequenceConfig{Oldest: &config.OldestConfig{MaxCandidateSequences: 16}},
		Parameters: map[string]config.Value{
			"state_pairs": {String: "<<<Cache, NewCache>>>"}, "max_state_bytes": {String: "24"},
		},
	}
}

// TestVaryingState: requests whose shapes agree share a run, the others have one
// of their own; each sequence keeps its own length.
func TestVaryingState(t *testing.T) {
	model := cacheModel()
	runs := 0
	inner := model.run
	model.run = func(inputs, outputs []onnx.Tensor) error { runs++; return inner(inputs, outputs) }
	in := model.loaded(t, cacheConfig())
	runs = 0
	got := send(t, in, words(1, true, false, 10), words(2, true, false, 20), words(3, true, false, 30, 31))
	require.Equal(t, 2, runs)
	require.Equal(t, []int32{20}, numbers(got[1].outputs[0]))
	require.Equal(t, tensor.Shape{1, 2}, got[2].shapes[0])
	got = send(t, in, words(3, false, false, 32), words(2, false, false, 21), words(1, false, false, 11))
	require.Equal(t, 4, runs)
	require.Equal(t, []int32{30, 31, 32}, numbers(got[0].outputs[0]))
	require.Equal(t, []int32{20, 21}, numbers(got[1].outputs[0]))
	require.Equal(t, []int32{10, 11}, numbers(got[2].outputs[0]))

	got = send(t, in, words(1, false, false, 1, 2, 3, 4, 5))
	require.ErrorContains(t, got[0].err, `state "Cache" would grow to 28 bytes`)
	require.Equal(t, status.InvalidArg, status.CodeOf(got[0].err))
	got = send(t, in, words(1, false, false, 12), words(2, true, false, 22))
	require.Equal(t, []int32{10, 11, 12}, numbers(got[0].outputs[0]), "the state was kept")
	require.Equal(t, []int32{22}, numbers(got[1].outputs[0]), "a START begins with an empty one")
}

// TestBudgetRefusesOnlyWhoDoesNotFit: where the memory for growing states is short,
// the others of a run go on, and what was refused counts as no step.
func TestBudgetRefusesOnlyWhoDoesNotFit(t *testing.T) {
	model := cacheModel()
	model.addInput("before", tensor.Int32, -1, 1)
	var before []int32
	inner := model.run
	model.run = func(inputs, outputs []onnx.Tensor) error {
		before = numbers(inputs[2].Data.Bytes)
		return inner(inputs, outputs)
	}
	cfg := cacheConfig()
	cfg.Parameters["derived_inputs"] = config.Value{String: "before = length_before(Input)"}
	cfg.Parameters["max_state_bytes"] = config.Value{String: "0"}
	cfg.Parameters["max_state_memory_bytes"] = config.Value{String: "700"} // a cache takes 256 bytes, then 512
	in := model.loaded(t, cfg)
	const refusal = "at most 700 bytes are allowed (max_state_memory_bytes)"

	got := send(t, in, words(1, true, false, 10), words(2, true, false, 20), words(3, true, false, 30))
	require.Equal(t, []int32{10}, numbers(got[0].outputs[0]))
	require.Equal(t, []int32{20}, numbers(got[1].outputs[0]))
	require.ErrorContains(t, got[2].err, refusal)
	require.Equal(t, status.Unavailable, status.CodeOf(got[2].err))
	require.EqualValues(t, 1, in.meter.failedRuns)

	got = send(t, in, words(3, false, false, 31), words(2, false, false, 21), words(1, false, false, make([]int32, 70)...))
	require.ErrorContains(t, got[0].err, "its START failed")
	require.Equal(t, []int32{20, 21}, numbers(got[1].outputs[0]))
	require.ErrorContains(t, got[2].err, refusal)

	got = send(t, in, words(1, false, false, 11))
	require.Equal(t, []int32{10, 11}, numbers(got[0].outputs[0]))
	require.Equal(t, []int32{1}, before)
}

// TestFilledInputs: inputs that the backend writes.
func TestFilledInputs(t *testing.T) {
	model := cacheModel()
	for _, extra := range []struct {
		name  string
		dtype tensor.DType
	}{{"steps", tensor.Int64}, {"before", tensor.Int32}, {"after", tensor.FP32}, {"scale", tensor.FP16}, {"id", tensor.Uint64}, {"end", tensor.Int32}, {"ready", tensor.Bool}} {
		model.addInput(extra.name, extra.dtype, -1, 1)
	}
	var seen [][]float64
	inner := model.run
	model.run = func(inputs, outputs []onnx.Tensor) error {
		for lane := range inputs[0].Shape[0] {
			var all []float64
			for i := 2; i < len(inputs); i++ {
				dtype := inputs[i].DType
				if dtype == tensor.Uint64 {
					dtype = tensor.Int64
				}
				all = append(all, runnertest.Element(inputs[i].Data.Bytes, dtype, lane))
			}
			seen = append(seen, all)
		}
		return inner(inputs, outputs)
	}
	c := cacheConfig()
	c.Parameters["derived_inputs"] = config.Value{String: "steps = steps; before = length_before(Input); after = length_after(Input)"}
	c.Parameters["constant_inputs"] = config.Value{String: "scale = 1.5"}
	c.Parameters["max_state_bytes"] = config.Value{String: "0"}
	c.Sequence.ControlInputs = []config.ControlConfig{
		{Name: "id", Controls: []config.Control{{Kind: config.ControlCorrID, DataType: "TYPE_UINT64"}}},
		{Name: "end", Controls: []config.Control{{Kind: config.ControlEnd, Int32FalseTrue: []int32{3, 4}}}},
		{Name: "ready", Controls: []config.Control{{Kind: config.ControlReady}}},
	}
	in := model.loaded(t, c)
	seen = nil
	for _, r := range []Request{words(7, true, false, 1, 2), words(7, false, false, 3), words(7, false, true, 4), words(7, true, true, 5)} {
		require.NoError(t, send(t, in, r)[0].err)
	}
	require.Equal(t, [][]float64{ // steps, before, after, scale, id, end, ready
		{0, 0, 2, 1.5, 7, 3, 1},
		{1, 2, 3, 1.5, 7, 3, 1},
		{2, 3, 4, 1.5, 7, 4, 1},
		{0, 0, 1, 1.5, 7, 4, 1},
	}, seen)
}

func TestFilledInputsReject(t *testing.T) {
	tests := []struct{ name, parameter, value, want string }{
		{"unknown input", "constant_inputs", "nothing = 1", `parameter constant_inputs: "nothing" is not`},
		{"no number", "constant_inputs", "extra = many", `parameter constant_inputs: input "extra": "many"`},
		{"out of range", "constant_inputs", "extra = 3000000000", `is not a value of type INT32`},
		{"unknown function", "derived_inputs", "extra = length(Input)", `want steps, length_before(INPUT), length_before(OUTPUT), length_after(INPUT), positions(INPUT)`},
		{"not closed", "derived_inputs", "extra = length_before(Input", `has no closing parenthesis`},
		{"length of nothing", "derived_inputs", "extra = length_before(Nothing)", `"Nothing" is not an input`},
		{"no axis", "derived_inputs", "extra = length_before(Input:x)", `want an axis counted from 0`},
		{"batch axis", "derived_inputs", "extra = length_before(Input:0)", `say which axis of input "Input"`},
		{"a name of nothing", "batch_axes", "Nothing = 0", `Nothing`},
		{"no such axis", "batch_axes", "Cache = 2", `parameter batch_axes: "Cache" has "2"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			model := cacheModel()
			model.addInput("extra", tensor.Int32, -1)
			c := cacheConfig()
			c.Parameters["constant_inputs"] = config.Value{String: "extra = 1"}
			if tt.parameter == "derived_inputs" {
				delete(c.Parameters, "constant_inputs")
			}
			c.Parameters[tt.parameter] = config.Value{String: tt.value}
			_, err := model.instance(t, c, "")
			require.ErrorContains(t, err, tt.want)
			require.Equal(t, status.InvalidArg, status.CodeOf(err))
		})
	}
}

// sumModel is one of fixed shapes: Output and the new state are state + input.
func sumModel() *scripted {
	s := &scripted{sig: onnx.Signature{
		Inputs:  []onnx.TensorInfo{info("Input", tensor.Int32, -1, 2), info("Sum", tensor.Int32, -1, 2)},
		Outputs: []onnx.TensorInfo{info("Output", tensor.Int32, -1, 2), info("NewSum", tensor.Int32, -1, 2)},
	}}
	s.run = func(inputs, outputs []onnx.Tensor) error {
		for i := range inputs[0].Data.Size / 4 {
			sum := runnertest.Element(inputs[0].Data.Bytes, tensor.Int32, i)
			if len(inputs) > 1 && inputs[1].DType != tensor.Invalid {
				sum += runnertest.Element(inputs[1].Data.Bytes, tensor.Int32, i)
			}
			for k := range outputs {
				if outputs[k].DType != tensor.Invalid {
					runnertest.SetElement(outputs[k].Data.Bytes, tensor.Int32, i, sum)
				}
			}
		}
		return nil
	}
	return s
}

func sumConfig() *config.Config {
	c := cacheConfig()
	c.Inputs[0].Dims, c.Outputs[0].Dims = tensor.Shape{2}, tensor.Shape{2}
	c.Parameters = map[string]config.Value{"state_pairs": {String: "<<<Sum, NewSum>>>"}}
	return c
}

// TestImplicitState: states that the configuration describes as Triton has it,
// with an output that clients see.
func TestImplicitState(t *testing.T) {
	model, c := sumModel(), sumConfig()
	delete(c.Parameters, "state_pairs")
	c.Outputs = append(c.Outputs, config.TensorConfig{Name: "NewSum", DataType: "TYPE_INT32", Dims: tensor.Shape{2}})
	c.Sequence.States = []config.StateConfig{{InputName: "Sum", OutputName: "NewSum", DataType: "TYPE_INT32", Dims: tensor.Shape{2}, Initial: []config.InitialState{{DataType: "TYPE_INT32", Dims: tensor.Shape{2}, ZeroData: true}}}}
	in := model.loaded(t, c)
	ask := func(start bool) []answer {
		return send(t, in, Request{Sequence: SequenceID{Number: 1}, Start: start, Inputs: intInput(tensor.Shape{1, 2}, 1, 2)})
	}
	ask(true)
	got := ask(false)
	require.Equal(t, []int32{2, 4}, numbers(got[0].outputs[0]))
	require.Equal(t, []int32{2, 4}, numbers(got[0].outputs[1]))
	require.Equal(t, tensor.Shape{1, 2}, got[0].shapes[1])

	for want, spoil := range map[string]func(*config.StateConfig){
		"TYPE_FP32 in the configuration":    func(s *config.StateConfig) { s.DataType = "TYPE_FP32" },
		"dims are [3] in the configuration": func(s *config.StateConfig) { s.Dims = tensor.Shape{3} },
		`data type "FLOAT" is unknown`:      func(s *config.StateConfig) { s.DataType = "FLOAT" },
		"a state has one initial value": func(s *config.StateConfig) {
			s.Initial = append(s.Initial, config.InitialState{DataType: "TYPE_INT32", Dims: tensor.Shape{2}, DataFile: "x"})
		},
		`"Sim" is not an input`: func(s *config.StateConfig) { s.InputName = "Sim" },
	} {
		states := []config.StateConfig{c.Sequence.States[0]}
		spoil(&states[0])
		spoiled, sequence := *c, *c.Sequence
		sequence.States, spoiled.Sequence = states, &sequence
		_, err := sumModel().instance(t, &spoiled, "")
		require.ErrorContains(t, err, want)
	}
}

// TestWithoutSequences: a model that keeps no states takes requests of several
// lanes, up to its batch.
func TestWithoutSequences(t *testing.T) {
	model, c := sumModel(), sumConfig()
	model.sig.Inputs, model.sig.Outputs = model.sig.Inputs[:1], model.sig.Outputs[:1]
	c.Sequence, c.Parameters = nil, nil
	in := model.loaded(t, c)
	got := send(t, in,
		Request{Inputs: intInput(tensor.Shape{3, 2}, 1, 2, 3, 4, 5, 6)}, Request{Inputs: intInput(tensor.Shape{1, 2}, 7, 8)},
		Request{Inputs: intInput(tensor.Shape{2, 2}, 9, 10, 11, 12)}, Request{Inputs: intInput(tensor.Shape{5, 2}, make([]int32, 10)...)})
	require.Equal(t, []int32{1, 2, 3, 4, 5, 6}, numbers(got[0].outputs[0]))
	require.Equal(t, tensor.Shape{3, 2}, got[0].shapes[0])
	require.Equal(t, []int32{7, 8}, numbers(got[1].outputs[0]))
	require.Equal(t, []int32{9, 10, 11, 12}, numbers(got[2].outputs[0]))
	require.ErrorContains(t, got[3].err, "the request has a batch of 5")
}

// TestNamedAlike: without any description states are found by their names.
func TestNamedAlike(t *testing.T) {
	for _, names := range [][2]string{{"h", "new_h"}, {"h", "h_out"}, {"state_in", "state_out"}, {"past_key_values.0.key", "present.0.key"}, {"hi", "ho"}, {"prev_h", "h"}, {"Accumulate_In_x", "Accumulate_Out_x"}} {
		model, c := sumModel(), sumConfig()
		model.sig.Inputs[1].Name, model.sig.Outputs[1].Name = names[0], names[1]
		delete(c.Parameters, "state_pairs")
		_, err := model.instance(t, c, "")
		require.NoError(t, err, "%v", names)
	}
	model, c := sumModel(), sumConfig()
	model.sig.Inputs[1].Name = "h"
	model.sig.Outputs = []onnx.TensorInfo{model.sig.Outputs[0], info("new_h", tensor.Int32, -1, 2), info("h_out", tensor.Int32, -1, 2)}
	delete(c.Parameters, "state_pairs")
	_, err := model.instance(t, c, "")
	require.ErrorContains(t, err, `input "h" could be paired with`)
}

// TestPatternPairs: one pair stands for many states.
func TestPatternPairs(t *testing.T) {
	for _, pairs := range []string{"<<<S*, NewS*>>>", "<<<S{i}, NewS{i}>>>", "<<<S{name}, NewS{name}>>>"} {
		model, c := sumModel(), sumConfig()
		c.Parameters["state_pairs"] = config.Value{String: pairs}
		model.loaded(t, c)
	}
	model, c := sumModel(), sumConfig()
	c.Parameters["state_pairs"] = config.Value{String: "<<<X*, NewX*>>>"}
	_, err := model.instance(t, c, "")
	require.ErrorContains(t, err, `the pattern "X*" matches no input`)
}
