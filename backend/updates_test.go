package backend

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnx/runnertest"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// deltaModel answers with the sum of all that a sequence has sent, and writes of its
// cache only what is new. sees is told what each lane has read.
func deltaModel(sees func(past []int32)) *scripted {
	s := &scripted{sig: onnx.Signature{
		Inputs:  []onnx.TensorInfo{info("Input", tensor.Int32, -1, 1), info("Past", tensor.Int32, -1, -1)},
		Outputs: []onnx.TensorInfo{info("Output", tensor.Int32, -1, 1), info("New", tensor.Int32, -1, 1)},
	}}
	s.nameBatch()
	s.sig.Inputs[1].Symbols[1] = "past"
	s.run = func(inputs, outputs []onnx.Tensor) error {
		lanes, length := inputs[1].Shape[0], inputs[1].Shape[1]
		outputs[1].Data, outputs[1].Shape = inputs[0].Data, tensor.Shape{lanes, 1}
		for lane := range lanes {
			past := numbers(inputs[1].Data.Bytes[4*lane*length : 4*(lane+1)*length])
			sum := int32(runnertest.Element(inputs[0].Data.Bytes, tensor.Int32, lane))
			for _, n := range past {
				sum += n
			}
			runnertest.SetElement(outputs[0].Data.Bytes, tensor.Int32, lane, float64(sum))
			sees(past)
		}
		return nil
	}
	return s
}

func deltaConfig() *config.Config {
	c := cacheConfig()
	c.Inputs[0].Dims, c.Outputs[0].Dims = tensor.Shape{1}, tensor.Shape{1}
	c.Parameters = map[string]config.Value{"state_pairs": {String: "<<<Past, New>>>"}, "state_updates": {String: "Pa* = append(1)"}}
	return c
}

func one(id uint64, start bool, value int32) Request {
	return Request{Sequence: SequenceID{Number: id}, Start: start, Inputs: intInput(tensor.Shape{1, 1}, value)}
}

// TestAppendedState: a model that writes the new part of its cache has all of it in
// the next step; a step that fails adds nothing.
func TestAppendedState(t *testing.T) {
	var seen [][]int32
	model := deltaModel(func(past []int32) { seen = append(seen, past) })
	fail := false
	inner := model.run
	model.run = func(inputs, outputs []onnx.Tensor) error {
		if err := inner(inputs, outputs); err != nil || fail {
			return errInjected
		}
		return nil
	}
	c := deltaConfig()
	c.Parameters["max_state_bytes"] = config.Value{String: "16"}
	in := model.loaded(t, c)
	for step, values := range [][3]int32{{1, 2, 3}, {10, 20, 30}, {100, 200, 300}, {1000, 2000, 3000}} {
		fail = step == 2
		if fail {
			for _, got := range send(t, in, one(1, false, 7), one(2, false, 7), one(3, false, 7)) {
				require.ErrorContains(t, got.err, "error during inference")
			}
			fail = false
		}
		seen = nil
		got := send(t, in, one(1, step == 0, values[0]), one(2, step == 0, values[1]), one(3, step == 0, values[2]))
		sum := []int32{1, 11, 111, 1111}[step]
		for i := range got {
			require.NoError(t, got[i].err)
			require.Equal(t, []int32{sum * int32(i+1)}, numbers(got[i].outputs[0]), "step %d", step)
		}
	}
	require.Equal(t, [][]int32{{1, 10, 100}, {2, 20, 200}, {3, 30, 300}}, seen, "they shared a run")
	got := send(t, in, one(1, false, 5))
	require.ErrorContains(t, got[0].err, `state "Past" would grow to 20 bytes`)
	require.Equal(t, []int32{2}, numbers(send(t, in, one(2, true, 2))[0].outputs[0]))

	var b strings.Builder
	in.describeTensors(&b)
	require.Contains(t, b.String(), "append(1) from state_updates, begins empty, [1,0]")
}

// crossModel computes a value from its first input and uses it from then on: it
// writes nothing where a flag, one for the whole run, says that there is one.
func crossModel(ran func(flag byte, lanes int64)) *scripted {
	s := &scripted{sig: onnx.Signature{
		Inputs:  []onnx.TensorInfo{info("Input", tensor.Int32, -1, 1), info("Cross", tensor.Int32, -1, 1), info("use_cache_branch", tensor.Bool, 1)},
		Outputs: []onnx.TensorInfo{info("Output", tensor.Int32, -1, 1), info("NewCross", tensor.Int32, -1, 1)},
	}}
	for _, infos := range [][]onnx.TensorInfo{s.sig.Inputs[:2], s.sig.Outputs} {
		for i := range infos {
			infos[i].Symbols[0] = "batch"
		}
	}
	s.run = func(inputs, outputs []onnx.Tensor) error {
		lanes := inputs[0].Shape[0]
		flag := inputs[2].Data.Bytes[0]
		ran(flag, lanes)
		cross := inputs[1].Data.Bytes
		outputs[1].Data, outputs[1].Shape = statebuffer.Block{}, tensor.Shape{0, 1}
		if flag == 0 {
			cross = inputs[0].Data.Bytes
			outputs[1].Data, outputs[1].Shape = inputs[0].Data, tensor.Shape{lanes, 1}
		}
		for lane := range lanes {
			runnertest.SetElement(outputs[0].Data.Bytes, tensor.Int32, lane, 1000*runnertest.Element(cross, tensor.Int32, lane)+runnertest.Element(inputs[0].Data.Bytes, tensor.Int32, lane))
		}
		return nil
	}
	return s
}

func crossConfig() *config.Config {
	c := deltaConfig()
	c.Parameters = map[string]config.Value{"state_pairs": {String: "<<<Cross, NewCross>>>"}, "state_updates": {String: "Cross = keep"}}
	c.Sequence.ControlInputs = []config.ControlConfig{{Name: "use_cache_branch", Controls: []config.Control{{Kind: config.ControlStart, BoolFalseTrue: []bool{true, false}}}}}
	return c
}

// TestKeptState: an empty output leaves the state, also one of fixed shape; and a flag
// without a batch axis parts a batch by its value.
func TestKeptState(t *testing.T) {
	type run struct {
		flag  byte
		lanes int64
	}
	var runs []run
	in := crossModel(func(flag byte, lanes int64) { runs = append(runs, run{flag, lanes}) }).loaded(t, crossConfig())
	runs = nil
	send(t, in, one(1, true, 1), one(2, true, 2))
	got := send(t, in, one(1, false, 5), one(3, true, 3), one(2, false, 6), one(4, true, 4))
	for i, want := range []int32{1005, 3003, 2006, 4004} {
		require.NoError(t, got[i].err)
		require.Equal(t, []int32{want}, numbers(got[i].outputs[0]))
	}
	require.Equal(t, []run{{0, 2}, {1, 2}, {0, 2}}, runs)
	got = send(t, in, one(4, false, 7), one(1, false, 8), one(2, true, 9))
	for i, want := range []int32{4007, 1008, 9009} {
		require.Equal(t, []int32{want}, numbers(got[i].outputs[0]))
	}
	var b strings.Builder
	in.describeTensors(&b)
	require.Contains(t, b.String(), "keep from state_updates, begins with zeros, [1,1]")
}

// TestSharedFlags: what there is once for all lanes is the same for the whole run,
// whatever it is counted from.
func TestSharedFlags(t *testing.T) {
	for _, tt := range []struct {
		parameter, kind string
		runs            int
	}{{"flag = steps", "", 2}, {"flag = length_before(Output:1)", "", 2}, {"", config.ControlEnd, 2}, {"", config.ControlReady, 1}, {"", config.ControlCorrID, 3}} {
		model := deltaModel(func([]int32) {})
		model.sig.Inputs = append(model.sig.Inputs, info("flag", tensor.Int32))
		runs, inner := 0, model.run
		model.run = func(inputs, outputs []onnx.Tensor) error { runs++; return inner(inputs, outputs) }
		model.sig.Inputs[1].Dims, model.sig.Inputs[1].Symbols[1] = tensor.Shape{-1, 1}, ""
		c := deltaConfig()
		delete(c.Parameters, "state_updates")
		if tt.parameter != "" {
			c.Parameters["derived_inputs"] = config.Value{String: tt.parameter}
		} else {
			c.Sequence.ControlInputs = []config.ControlConfig{{Name: "flag", Controls: []config.Control{{Kind: tt.kind, Int32FalseTrue: []int32{0, 1}, DataType: "TYPE_INT32"}}}}
		}
		in := model.loaded(t, c)
		send(t, in, one(1, true, 1))
		runs = 0
		last := one(1, false, 1)
		last.End = true
		got := send(t, in, last, one(2, true, 1), one(3, true, 1))
		for i := range got {
			require.NoError(t, got[i].err)
		}
		require.Equal(t, tt.runs, runs, "%+v", tt)
	}
}

func TestStateUpdatesReject(t *testing.T) {
	for _, tt := range []struct {
		updates, want string
		spoil         func(*scripted, *config.Config)
	}{
		{updates: "Past = grow", want: `state <<<Past, New>>>: state_updates says "grow"`},
		{updates: "Past = append", want: `state_updates says "append": want`},
		{updates: "Past = append(1", want: `state_updates says "append(1": want`},
		{updates: "Past = append(x)", want: `state_updates says "append(x)": want`},
		{updates: "Past = append(2)", want: `state_updates says append(2)`},
		{updates: "Past = append(-1)", want: `state_updates says append(-1): want an axis`},
		{updates: "Past = append(0)", want: `state_updates says append(0), but axis 0`},
		{updates: "Nothing = keep", want: `parameter state_updates: no state named "Nothing"`},
		{updates: "keep", want: `parameter state_updates: "keep" is not of the form NAME = VALUE`},
		{updates: "Past = append(1)", want: `that axis of [1,3] is fixed`, spoil: func(m *scripted, _ *config.Config) {
			m.sig.Inputs[1].Dims = tensor.Shape{-1, 3}
		}},
		{updates: "Past = append(1)", want: `state_updates says append(1)`, spoil: func(m *scripted, c *config.Config) {
			m.addInput("mask", tensor.Int32, -1, -1)
			c.Parameters["derived_inputs"] = config.Value{String: "mask = mask(Past)"}
		}},
		{updates: "Past = keep", want: `for which state_updates says keep`, spoil: func(_ *scripted, c *config.Config) {
			c.Outputs = append(c.Outputs, config.TensorConfig{Name: "New", DataType: "TYPE_INT32", Dims: tensor.Shape{1}})
		}},
	} {
		model, c := deltaModel(func([]int32) {}), deltaConfig()
		c.Parameters["state_updates"] = config.Value{String: tt.updates}
		if tt.spoil != nil {
			tt.spoil(model, c)
		}
		_, err := model.instance(t, c, "")
		require.ErrorContains(t, err, tt.want)
		require.Equal(t, status.InvalidArg, status.CodeOf(err))
	}
}

// TestAppendedAnswer: the answer has what the model wrote, not what is kept.
func TestAppendedAnswer(t *testing.T) {
	c := deltaConfig()
	c.Outputs = append(c.Outputs, config.TensorConfig{Name: "New", DataType: "TYPE_INT32", Dims: tensor.Shape{1}})
	in := deltaModel(func([]int32) {}).loaded(t, c)
	send(t, in, one(1, true, 4))
	got := send(t, in, one(1, false, 5))
	require.Equal(t, []int32{9}, numbers(got[0].outputs[0]))
	require.Equal(t, []int32{5}, numbers(got[0].outputs[1]))
	require.Equal(t, tensor.Shape{1, 1}, got[0].shapes[1])
}

// TestKeptStateWithoutNames: where axes have no names, runs show that lanes are isolated,
// also in a model that writes nothing in these runs.
func TestKeptStateWithoutNames(t *testing.T) {
	model := crossModel(func(byte, int64) {})
	withoutSymbols(&model.sig)
	in := model.loaded(t, crossConfig())
	got := send(t, in, one(1, true, 1), one(2, true, 2))
	require.Equal(t, []int32{2002}, numbers(got[1].outputs[0]))
}
