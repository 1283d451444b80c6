package planner

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/backend/plan/batchaxis"
	"tritonstateful/backend/plan/isolation"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnx/runnertest"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// proving makes a plan of a model for a configuration, and proves it.
func proving(t *testing.T, r onnx.Runner, open func() onnx.Runner, cfg *config.Config, verify config.Verify) (*plan.Plan, Proof, error) {
	params, _, err := config.ParseParameters(cfg.Parameters)
	require.NoError(t, err)
	params.Verify = verify
	s := &Source{Config: cfg, Parameters: params, Signature: r.Signature(), Runner: func() (onnx.Runner, error) { return r, nil }}
	if open != nil {
		s.Open = func() (onnx.Runner, error) { return open(), nil }
	}
	return Make(s)
}

// recurrenceConfig is for x and y of any length, and for the state s if there is one.
func recurrenceConfig(dtype string, state bool) *config.Config {
	c := &config.Config{
		MaxBatchSize: 8, Parameters: map[string]config.Value{},
		Inputs:  []config.TensorConfig{{Name: "x", DataType: "TYPE_" + dtype, Dims: tensor.Shape{-1}}},
		Outputs: []config.TensorConfig{{Name: "y", DataType: "TYPE_" + dtype, Dims: tensor.Shape{-1}}},
	}
	if state {
		c.Sequence = &config.SequenceConfig{Oldest: &config.OldestConfig{MaxCandidateSequences: 16}}
	}
	return c
}

// TestBatchIsProved: whatever axes are called, time is never taken for the batch, also by
// integers, without states and where only some contents run.
func TestBatchIsProved(t *testing.T) {
	for _, dtype := range []string{"FP32", "INT64", "FP16"} {
		for _, c := range []struct {
			name, x, s, y string
			time          int
			divisor       bool
			least         int64
		}{
			{name: "a tie of names", x: "time,batch", y: "time,batch"},
			{name: "a tie, the batch first", x: "batch,time", y: "batch,time", time: 1},
			{name: "names of dynamo", x: "s17,s53", y: "s17,s53", s: "s53"},
			{name: "n is time, i the batch", x: "n,i", y: "n,i", s: "i"},
			{name: "n is time, and only outputs show it", x: "n,i", y: "n,i", s: "i", least: 2},
			{name: "no names", x: "?,?", y: "?,?", s: "?"},
			{name: "no names, the batch first", x: "?,?", y: "?,?", s: "?", time: 1},
			{name: "names on inputs only", x: "batch,time", y: "Addy_dim_0,Addy_dim_1", s: "batch", time: 1, least: 7},
			{name: "a name for each tensor", x: "x_0,x_1", y: "y_0,y_1", s: "s_0", least: 5},
			{name: "a divisor", x: "?,?", y: "?,?", s: "?", divisor: true},
			{name: "no states, no names", x: "?,?", y: "?,?"},
			{name: "many frames", x: "time,batch", y: "time,batch", s: "batch", least: 100},
			{name: "more frames than are usual", x: "?,?", y: "?,?", s: "?", least: 1000},
		} {
			t.Run(dtype+" "+c.name, func(t *testing.T) {
				inputs, outputs := fmt.Sprintf("x:%s[%s]", dtype, c.x), fmt.Sprintf("y:%s[%s]", dtype, c.y)
				if c.s != "" {
					inputs, outputs = inputs+fmt.Sprintf(" s:%s[%s]", dtype, c.s), outputs+fmt.Sprintf(" s_out:%s[%s]", dtype, c.s)
				}
				cfg := recurrenceConfig(dtype, c.s != "")
				if c.divisor {
					inputs += " k:INT64[1]"
					cfg.Inputs = append(cfg.Inputs, config.TensorConfig{Name: "k", DataType: "TYPE_INT64", Dims: tensor.Shape{1}})
				}
				r := runnertest.NewRecurrence(t, inputs, outputs, c.time)
				r.Divisor, r.Least = c.divisor, c.least
				p, proof, err := proving(t, r, nil, cfg, config.VerifyInferred)
				require.NoError(t, err)
				require.Empty(t, proof.Warning)
				require.Equal(t, 8, p.MaxLanes)
				require.Equal(t, 1-c.time, p.Inputs[0].Axis)
				require.Equal(t, 1-c.time, p.Outputs[0].Axis)
				if c.s != "" {
					require.Equal(t, 0, p.States[0].Axis)
				}
				require.Zero(t, r.Heap.Used(), "runs must free what they take")
			})
		}
	}
}

// TestBatchAtDifferentPositions: without names, the batch of one tensor may be at its last open
// axis and that of another at its first.
func TestBatchAtDifferentPositions(t *testing.T) {
	r := runnertest.NewRecurrence(t, "x:FP32[?,?] s:FP32[?,?]", "y:FP32[?,?] s_out:FP32[?,?]", 0)
	r.Runs = func(sig *onnx.Signature, inputs, outputs []onnx.Tensor) error {
		lanes, rest := inputs[1].Shape[0], inputs[1].Shape[1]
		first := onnx.Tensor{DType: tensor.FP32, Shape: tensor.Shape{lanes}}
		runnertest.Allocate(&first, lanes)
		for lane := range lanes {
			runnertest.SetElement(first.Data.Bytes, tensor.FP32, lane, runnertest.Element(inputs[1].Data.Bytes, tensor.FP32, lane*rest))
		}
		if err := r.Compute(sig, []onnx.Tensor{inputs[0], first}, outputs); err != nil {
			return err
		}
		sums := outputs[1]
		runnertest.Allocate(&outputs[1], inputs[1].Shape...)
		for at := range lanes * rest {
			runnertest.SetElement(outputs[1].Data.Bytes, tensor.FP32, at, runnertest.Element(sums.Data.Bytes, tensor.FP32, at/rest))
		}
		return nil
	}
	cfg := recurrenceConfig("FP32", true)
	cfg.Parameters["initial_states"] = config.Value{String: "s = 0[1,2]"}
	p, _, err := proving(t, r, nil, cfg, config.VerifyInferred)
	require.NoError(t, err)
	require.Equal(t, 1, p.Inputs[0].Axis)
	require.Equal(t, 0, p.Varying[0].Axis)
}

// TestBatchNotJudged: where no run shows anything, the exporter's name on all tensors is
// believed, with a warning, and nothing else is.
func TestBatchNotJudged(t *testing.T) {
	model := func(x, y string) *runnertest.Recurrence {
		r := runnertest.NewRecurrence(t, "x:FP32["+x+"]", "y:FP32["+y+"]", 0)
		r.Least = 2000
		return r
	}
	p, proof, err := proving(t, model("time,batch", "time,batch"), nil, recurrenceConfig("FP32", false), config.VerifyInferred)
	require.NoError(t, err)
	require.Equal(t, 1, p.Inputs[0].Axis)
	require.Contains(t, proof.Warning, `could not verify that`)
	require.Contains(t, proof.Warning, "string_value: '* = 1'")
	for _, axes := range [][2]string{{"time,batch", "a,b"}, {"s0,s1", "s0,s1"}, {"?,?", "?,?"}} {
		_, _, err = proving(t, model(axes[0], axes[1]), nil, recurrenceConfig("FP32", false), config.VerifyInferred)
		require.ErrorContains(t, err, "could not be verified", axes)
		require.ErrorContains(t, err, "write parameters { key: 'batch_axes'", axes)
	}
}

// TestBatchOfChance: what is drawn again in each session in the same way can be judged, what
// is not cannot.
func TestBatchOfChance(t *testing.T) {
	session := func(drawn *int64) *runnertest.Recurrence {
		r := runnertest.NewRecurrence(t, "x:FP32[?,?]", "y:FP32[?,?]", 0)
		r.Chance = drawn
		return r
	}
	p, _, err := proving(t, session(new(int64)), func() onnx.Runner { return session(new(int64)) }, recurrenceConfig("FP32", false), config.VerifyInferred)
	require.NoError(t, err)
	require.Equal(t, 1, p.Inputs[0].Axis)
	drawn := new(int64)
	_, _, err = proving(t, session(drawn), func() onnx.Runner { return session(drawn) }, recurrenceConfig("FP32", false), config.VerifyInferred)
	require.ErrorContains(t, err, "two runs on the same inputs")
}

// TestBatchOfFewChances: two runs of a model with small numbers of chance can be the same, which does not make them a
// proof of influence.
func TestBatchOfFewChances(t *testing.T) {
	session := func(seed uint64) *runnertest.Recurrence {
		r, draw := runnertest.NewRecurrence(t, "x:FP32[?,?]", "y:FP32[?,?]", 0), rand.New(rand.NewPCG(seed, 0))
		r.Runs = func(sig *onnx.Signature, inputs, outputs []onnx.Tensor) error {
			before := draw.Int64N(2) - 1 // the model adds one more
			r.Chance = &before
			return r.Compute(sig, inputs, outputs)
		}
		return r
	}
	wrong := 0
	for seed := range uint64(200) {
		p, _, err := proving(t, session(seed), func() onnx.Runner { return session(seed) }, recurrenceConfig("FP32", false), config.VerifyInferred)
		if err != nil || p.Inputs[0].Axis != 1 {
			wrong++
		}
	}
	require.LessOrEqual(t, wrong, 10, "of 200")
}

// TestBatchThatIsTold: batch_axes is believed; verify: always checks it and warns once.
func TestBatchThatIsTold(t *testing.T) {
	r := runnertest.NewRecurrence(t, "x:FP32[time,batch]", "y:FP32[time,batch]", 0)
	cfg := recurrenceConfig("FP32", false)
	cfg.Parameters["batch_axes"] = config.Value{String: "* = 0"}
	p, proof, err := proving(t, r, nil, cfg, config.VerifyInferred)
	require.NoError(t, err)
	require.Equal(t, 0, p.Inputs[0].Axis)
	require.Zero(t, proof.Runs)
	require.Empty(t, proof.Warning)
	_, proof, err = proving(t, r, nil, cfg, config.VerifyAlways)
	require.NoError(t, err)
	require.Contains(t, proof.Warning, `batch_axes sets the batch to axis 0 of "x"`)
	cfg.Parameters["batch_axes"] = config.Value{String: "* = 1"}
	_, proof, err = proving(t, r, nil, cfg, config.VerifyAlways)
	require.NoError(t, err)
	require.Empty(t, proof.Warning)
	require.Positive(t, proof.Runs)
}

// TestBatchUnproved: without runs the likeliest candidate is taken, with a warning.
func TestBatchUnproved(t *testing.T) {
	r := runnertest.NewRecurrence(t, "x:FP32[time,batch]", "y:FP32[time,batch]", 0)
	p, proof, err := proving(t, r, nil, recurrenceConfig("FP32", false), config.VerifyNever)
	require.NoError(t, err)
	require.Equal(t, 1, p.Inputs[0].Axis)
	require.Zero(t, proof.Runs)
	require.Contains(t, proof.Warning, "verify is never")
}

// TestBatchNeverEmpty: a state does not begin with nothing along an axis that no run shows
// to grow, and no run has such a state.
func TestBatchNeverEmpty(t *testing.T) {
	r := runnertest.NewFile(t, "x:FP32[time,8] s:FP32[rows,8]", "y:FP32[time,8] s_out:FP32[rows,8]")
	r.Runs = func(sig *onnx.Signature, inputs, outputs []onnx.Tensor) error {
		require.NotContains(t, inputs[1].Shape, int64(0), "a run that could end the process")
		for i := range outputs { // everything sees everything
			runnertest.Allocate(&outputs[i], inputs[i].Shape...)
			runnertest.Fill(&outputs[i], runnertest.Sum(&inputs[0])+runnertest.Sum(&inputs[1]))
		}
		return nil
	}
	cfg := recurrenceConfig("FP32", true)
	cfg.MaxBatchSize, cfg.Inputs[0].Dims, cfg.Outputs[0].Dims = 0, tensor.Shape{-1, 8}, tensor.Shape{-1, 8}
	_, _, err := proving(t, r, nil, cfg, config.VerifyInferred)
	require.ErrorContains(t, err, "batch_axes")
}

// sums is a model over [batch, time] that writes the sum of each lane, and of all of them
// where influences says so.
func sums(t *testing.T, inputs string, influences func(inputs []onnx.Tensor) bool) *runnertest.File {
	r := runnertest.NewFile(t, inputs, "y:FP32[batch,1]")
	r.Runs = func(sig *onnx.Signature, inputs, outputs []onnx.Tensor) error {
		lanes, frames := inputs[0].Shape[0], inputs[0].Shape[1]
		runnertest.Allocate(&outputs[0], lanes, 1)
		all, own := 0.0, make([]float64, lanes)
		for lane := range lanes {
			for frame := range frames {
				own[lane] += runnertest.Element(inputs[0].Data.Bytes, tensor.FP32, lane*frames+frame)
			}
			all += own[lane]
		}
		for lane := range lanes {
			if influences(inputs) {
				own[lane] = all / float64(lanes)
			}
			runnertest.SetElement(outputs[0].Data.Bytes, tensor.FP32, lane, own[lane])
		}
		return nil
	}
	return r
}

// TestLanesMeetAtOneFrame: what a model does differently with axes of 1, as Squeeze does, is
// tried, too.
func TestLanesMeetAtOneFrame(t *testing.T) {
	cfg := recurrenceConfig("FP32", false)
	cfg.Outputs[0].Dims = tensor.Shape{1}
	for frames, want := range map[int64]string{1: "changes with the inputs of another", 2: ""} {
		r := sums(t, "x:FP32[batch,time]", func(inputs []onnx.Tensor) bool { return inputs[0].Shape[1] == 1 && frames == 1 })
		for _, verify := range []config.Verify{config.VerifyInferred, config.VerifyAlways} {
			_, _, err := proving(t, r, nil, cfg, verify)
			if want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, want)
			}
		}
	}
}

// TestLanesMeetInAFirstStep: so is what it does differently with a first frame.
func TestLanesMeetInAFirstStep(t *testing.T) {
	r := sums(t, "x:FP32[batch,time] cache:FP32[batch,past]", func(inputs []onnx.Tensor) bool { return inputs[0].Shape[1]+inputs[1].Shape[1] == 1 })
	r.Sig.Outputs = runnertest.Tensors(t, "y:FP32[batch,1] new_cache:FP32[batch,all]")
	inner := r.Runs
	r.Runs = func(sig *onnx.Signature, inputs, outputs []onnx.Tensor) error {
		lanes, frames, past := inputs[0].Shape[0], inputs[0].Shape[1], inputs[1].Shape[1]
		if inputs[1].Shape[0] != lanes {
			return errors.New("batches differ")
		}
		all := frames + past
		runnertest.Allocate(&outputs[1], lanes, all)
		for lane := range lanes {
			for at := range all {
				value := 0.0
				if at < past {
					value = runnertest.Element(inputs[1].Data.Bytes, tensor.FP32, lane*past+at)
				} else {
					value = runnertest.Element(inputs[0].Data.Bytes, tensor.FP32, lane*frames+at-past)
				}
				runnertest.SetElement(outputs[1].Data.Bytes, tensor.FP32, lane*all+at, value)
			}
		}
		return inner(sig, inputs, outputs[:1])
	}
	cfg := recurrenceConfig("FP32", true)
	cfg.Outputs[0].Dims = tensor.Shape{1}
	_, _, err := proving(t, r, nil, cfg, config.VerifyInferred)
	require.ErrorContains(t, err, `output "y" of one request changes`)
}

// TestLanesMeetByWhatMayBeLeftOut: inputs that requests may leave out are tried with the
// others.
func TestLanesMeetByWhatMayBeLeftOut(t *testing.T) {
	r := sums(t, "x:FP32[batch,time] gain:FP32[batch,1]", func(inputs []onnx.Tensor) bool { return inputs[1].Shape != nil })
	r.Sig.Inputs[1].Optional = true
	cfg := recurrenceConfig("FP32", false)
	cfg.Outputs[0].Dims = tensor.Shape{1}
	cfg.Inputs = append(cfg.Inputs, config.TensorConfig{Name: "gain", DataType: "TYPE_FP32", Dims: tensor.Shape{1}, Optional: true})
	_, _, err := proving(t, r, nil, cfg, config.VerifyInferred)
	require.ErrorContains(t, err, "changes with the inputs of another")
}

// TestProofOverTime: what there was no time for is not shown.
func TestProofOverTime(t *testing.T) {
	const all = 14 // runs: one lane, 5 of two, 4 with long axes, 4 with axes of 1
	for last := 1; last <= all; last++ {
		runs, until := 0, time.Now().Add(20*time.Millisecond)
		r := sums(t, "x:FP32[batch,time]", func([]onnx.Tensor) bool { return false })
		inner := r.Runs
		r.Runs = func(sig *onnx.Signature, inputs, outputs []onnx.Tensor) error {
			if runs++; runs == last {
				time.Sleep(time.Until(until) + time.Millisecond)
			}
			return inner(sig, inputs, outputs)
		}
		cfg := recurrenceConfig("FP32", false)
		pl, _, err := proving(t, r, nil, cfg, config.VerifyNever)
		require.NoError(t, err)
		candidate := &batchaxis.Candidates(cfg, &config.Parameters{}, r.Signature())[0]
		trial := isolation.NewTrial(r, pl, candidate, cfg.CanRequest, until)
		got := trial.Judge(make([]batchaxis.Axis, len(r.Sig.Outputs)))
		if last == all {
			require.Equal(t, isolation.Isolated, got.Verdict, got.Why)
			continue
		}
		require.Equal(t, isolation.Undecided, got.Verdict, "after %d of its runs: %s", last, got.Why)
	}
}

// TestLanesThatShareAScale: the refusal of a model that quantizes while it runs says why its
// lanes are not isolated, and only that of such a model.
func TestLanesThatShareAScale(t *testing.T) {
	for operator, shared := range map[string]bool{"DynamicQuantizeLinear": true, "QuantizeLinear": false} {
		r := runnertest.NewRecurrence(t, "x:FP32[N]", "y:FP32[N]", 0)
		r.Sig.Operators = map[string]int{operator: 1}
		r.Runs = func(_ *onnx.Signature, inputs, outputs []onnx.Tensor) error {
			elements := inputs[0].Data.Size / 4
			runnertest.Allocate(&outputs[0], inputs[0].Shape...)
			most := 0.0
			for at := range elements {
				most = max(most, runnertest.Element(inputs[0].Data.Bytes, tensor.FP32, at))
			}
			for at := range elements {
				runnertest.SetElement(outputs[0].Data.Bytes, tensor.FP32, at, runnertest.Element(inputs[0].Data.Bytes, tensor.FP32, at)+most)
			}
			return nil
		}
		cfg := recurrenceConfig("FP32", false)
		cfg.Inputs[0].Dims, cfg.Outputs[0].Dims = tensor.Shape{1}, tensor.Shape{1}
		cfg.Inputs[0].Reshape, cfg.Outputs[0].Reshape = &config.Reshape{}, &config.Reshape{}
		_, _, err := proving(t, r, nil, cfg, config.VerifyInferred)
		require.ErrorContains(t, err, `output "y" of one request changes`)
		require.Equal(t, shared, strings.Contains(err.Error(), "(DynamicQuantizeLinear)"))
	}
}

// TestBatchCalledAsALength: dims that leave out the only open axis say that it is the batch,
// whatever it is called; where nothing says so, the error has the line that does.
func TestBatchCalledAsALength(t *testing.T) {
	for _, name := range []string{"num_samples", "step", "T"} {
		axes := "[" + name + ",8]"
		r := runnertest.NewRecurrence(t, "x:FP32"+axes+" s:FP32"+axes, "y:FP32"+axes+" s_out:FP32"+axes, 0)
		r.Runs = func(_ *onnx.Signature, inputs, outputs []onnx.Tensor) error {
			for i := range outputs {
				outputs[i].Shape, outputs[i].Data = inputs[i].Shape.Clone(), statebuffer.Block{Bytes: slices.Clone(inputs[i].Data.Bytes), Size: inputs[i].Data.Size}
			}
			return nil
		}
		cfg := recurrenceConfig("FP32", true)
		cfg.Inputs[0].Dims, cfg.Outputs[0].Dims = tensor.Shape{8}, tensor.Shape{8}
		p, proof, err := proving(t, r, nil, cfg, config.VerifyInferred)
		require.NoError(t, err)
		require.Equal(t, 0, p.Inputs[0].Axis)
		require.Equal(t, 8, p.MaxLanes)
		require.Positive(t, proof.Runs)

		cfg.MaxBatchSize, cfg.Inputs[0].Dims, cfg.Outputs[0].Dims = 0, tensor.Shape{-1, 8}, tensor.Shape{-1, 8}
		_, _, err = proving(t, r, nil, cfg, config.VerifyInferred)
		require.ErrorContains(t, err, `string_value: '* = 0'`)
	}
}

// TestBatchOfSmallNumbers: a model that takes no large numbers is judged by those that it
// takes, and keeps its lanes.
func TestBatchOfSmallNumbers(t *testing.T) {
	r := runnertest.NewRecurrence(t, "x:FP32[time,batch]", "y:FP32[time,batch]", 0)
	r.Runs = func(sig *onnx.Signature, inputs, outputs []onnx.Tensor) error {
		for at := range inputs[0].Data.Size / 4 {
			if runnertest.Element(inputs[0].Data.Bytes, tensor.FP32, at) > 2 {
				return errors.New("beyond the vocabulary")
			}
		}
		return r.Compute(sig, inputs, outputs)
	}
	p, proof, err := proving(t, r, nil, recurrenceConfig("FP32", false), config.VerifyInferred)
	require.NoError(t, err)
	require.Empty(t, proof.Warning)
	require.Equal(t, 8, p.MaxLanes)
}

// TestBatchAxesOfAFixedAxis: it is batch_axes that is wrong then, not the dims.
func TestBatchAxesOfAFixedAxis(t *testing.T) {
	r := runnertest.NewRecurrence(t, "x:FP32[?,3]", "y:FP32[?,3]", 0)
	cfg := recurrenceConfig("FP32", false)
	cfg.Inputs[0].Dims, cfg.Outputs[0].Dims = tensor.Shape{3}, tensor.Shape{3}
	cfg.Parameters["batch_axes"] = config.Value{String: "x = 1"}
	_, _, err := proving(t, r, nil, cfg, config.VerifyInferred)
	require.ErrorContains(t, err, `batch_axes names axis 1 of [-1,3]`)
	require.NotContains(t, err.Error(), "write dims")
}
