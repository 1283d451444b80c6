package isolation

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/plan"
	"tritonstateful/backend/plan/batchaxis"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnx/runnertest"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// trialOf is a trial of a model whose inputs of requests and states have their batch at
// axis 0. The last inputs and outputs are those of states, as many as begin has shapes.
func trialOf(r *runnertest.File, begin ...tensor.Shape) *Trial {
	p, k := &plan.Plan{}, &batchaxis.Candidate{In: make([]batchaxis.Axis, len(r.Sig.Inputs))}
	requests := len(r.Sig.Inputs) - len(begin)
	for i := range r.Sig.Inputs[:requests] {
		info := &r.Sig.Inputs[i]
		p.Inputs = append(p.Inputs, plan.IO{IOTensor: onnx.IOTensor{DType: info.DType}, Index: i, Dims: info.Dims})
	}
	for i, shape := range begin {
		info := &r.Sig.Inputs[requests+i]
		p.Varying = append(p.Varying, plan.State{
			In: requests + i, Out: len(r.Sig.Outputs) - len(begin) + i, Dims: info.Dims, DType: info.DType, Shape: shape,
		})
	}
	t := NewTrial(r, p, k, func(string) bool { return true }, time.Now().Add(time.Minute))
	t.MayBegin = true
	return t
}

// judged is what runs show of a model, of whose outputs nothing is known.
func judged(t *Trial) Judgement { return t.Judge(make([]batchaxis.Axis, len(t.sig.Outputs))) }

// sums is a model whose output y[batch] has the sum of each lane of its inputs, and where
// crosses says so, those of the lane before, too.
func sums(t *testing.T, inputs string, crosses func(inputs []onnx.Tensor) bool) *runnertest.File {
	r := runnertest.NewFile(t, inputs, "y:FP32[batch]")
	r.Runs = func(_ *onnx.Signature, inputs, outputs []onnx.Tensor) error {
		lanes := inputs[0].Shape[0]
		own := make([]float64, lanes)
		for i := range inputs {
			in := &inputs[i]
			if in.Shape == nil {
				continue // left out
			}
			each := in.Data.Size / int64(in.DType.Size()) / lanes
			for at := range each * lanes {
				own[at/each] += runnertest.Element(in.Data.Bytes, in.DType, at)
			}
		}
		runnertest.Allocate(&outputs[0], lanes)
		for lane := range lanes {
			value := own[lane]
			if lane > 0 && crosses(inputs) {
				value += own[lane-1]
			}
			runnertest.SetElement(outputs[0].Data.Bytes, tensor.FP32, lane, value)
		}
		return nil
	}
	return r
}

func never([]onnx.Tensor) bool  { return false }
func always([]onnx.Tensor) bool { return true }

// TestJudge has each verdict, with what it says of the outputs.
func TestJudge(t *testing.T) {
	chance := 0.0
	for name, c := range map[string]struct {
		spoil func(r *runnertest.File)
		want  Verdict
		why   string
	}{
		"isolated":   {func(*runnertest.File) {}, Isolated, ""},
		"it crosses": {func(r *runnertest.File) { r.Runs = sums(t, "x:FP32[batch,time]", always).Runs }, NotIsolated, `"y" of one request changes`},
		"one lane": {func(r *runnertest.File) {
			before(r, func(inputs []onnx.Tensor) error {
				if inputs[0].Shape[0] > 1 {
					return errors.New("too many")
				}
				return nil
			})
		}, OneLane, "too many"},
		"no lanes": {func(r *runnertest.File) { r.Sig.Inputs[0].Dims[0] = 1 }, OneLane, "no input has lanes"},
		"it never runs": {func(r *runnertest.File) {
			before(r, func([]onnx.Tensor) error { return errors.New("out of order") })
		}, Undecided, "out of order"},
		"chance": {func(r *runnertest.File) {
			after(r, func(y *onnx.Tensor) {
				chance++
				runnertest.Fill(y, chance)
			})
		}, Undecided, "two runs on the same inputs"},
		"no output with lanes": {func(r *runnertest.File) {
			after(r, func(y *onnx.Tensor) { runnertest.Allocate(y, 7) })
		}, Undecided, "no output has a batch axis"},
		"an output of another shape": {func(r *runnertest.File) {
			after(r, func(y *onnx.Tensor) { runnertest.Allocate(y, 2*y.Shape[0]) })
		}, NotIsolated, "has shape [2] for one request"},
	} {
		t.Run(name, func(t *testing.T) {
			r := sums(t, "x:FP32[batch,time]", never)
			c.spoil(r)
			got := judged(trialOf(r))
			require.Equal(t, c.want, got.Verdict, got.Why)
			require.Contains(t, got.Why, c.why)
			if c.want == Isolated {
				require.Equal(t, map[int]int{0: 0}, got.Out)
			}
		})
	}
}

// before has a model fail where check does.
func before(r *runnertest.File, check func(inputs []onnx.Tensor) error) {
	inner := r.Runs
	r.Runs = func(sig *onnx.Signature, inputs, outputs []onnx.Tensor) error {
		if err := check(inputs); err != nil {
			return err
		}
		return inner(sig, inputs, outputs)
	}
}

// after changes what a model has written.
func after(r *runnertest.File, change func(y *onnx.Tensor)) {
	inner := r.Runs
	r.Runs = func(sig *onnx.Signature, inputs, outputs []onnx.Tensor) error {
		err := inner(sig, inputs, outputs)
		change(&outputs[0])
		return err
	}
}

// TestJudgeInTime: no run begins after the deadline, and what was not run is not shown.
func TestJudgeInTime(t *testing.T) {
	trial := trialOf(sums(t, "x:FP32[batch,time]", never))
	trial.deadline = time.Now().Add(-time.Second)
	got := judged(trial)
	require.Equal(t, Undecided, got.Verdict)
	require.Contains(t, got.Why, "took too long")
	require.Zero(t, trial.Runs)
}

// TestRareCrossings: lanes are also tried with an extent of 1, with a long one, with numbers
// below 0, and with inputs that requests may leave out.
func TestRareCrossings(t *testing.T) {
	for name, crosses := range map[string]func(inputs []onnx.Tensor) bool{
		"at one frame":        func(in []onnx.Tensor) bool { return in[0].Shape[1] == 1 },
		"at many frames":      func(in []onnx.Tensor) bool { return in[0].Shape[1] >= longExtent },
		"with a gain":         func(in []onnx.Tensor) bool { return in[1].Shape != nil },
		"without a gain only": func(in []onnx.Tensor) bool { return in[1].Shape == nil },
		"below zero": func(in []onnx.Tensor) bool {
			for at := range in[0].Data.Size / 4 {
				if runnertest.Element(in[0].Data.Bytes, tensor.FP32, at) < 0 {
					return true
				}
			}
			return false
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := sums(t, "x:FP32[batch,time] gain:FP32[batch,1]", crosses)
			r.Sig.Inputs[1].Optional = true
			got := judged(trialOf(r))
			require.Equal(t, NotIsolated, got.Verdict, got.Why)
			require.Contains(t, got.Why, `"y" of one request changes`)
		})
	}
}

// TestFirstSteps: a state is tried as it begins, but only where that is allowed.
func TestFirstSteps(t *testing.T) {
	const inputs = "x:FP32[batch,time] cache:FP32[batch,past]"
	growing := func(crosses func(inputs []onnx.Tensor) bool) *runnertest.File {
		r := sums(t, inputs, crosses)
		r.Sig.Outputs = append(r.Sig.Outputs, runnertest.Tensors(t, "new:FP32[batch,all]")...)
		inner := r.Runs
		r.Runs = func(sig *onnx.Signature, in, out []onnx.Tensor) error {
			if in[1].Shape[0] != in[0].Shape[0] {
				return errors.New("batches differ")
			}
			runnertest.Allocate(&out[1], in[0].Shape[0], in[0].Shape[1]+in[1].Shape[1])
			withCache := in
			if in[1].Shape[1] == 0 {
				withCache = slices.Concat(in[:1], []onnx.Tensor{{}})
			}
			return inner(sig, withCache, out)
		}
		return r
	}
	first := func(in []onnx.Tensor) bool { return in[1].Shape == nil }
	trial := trialOf(growing(first), tensor.Shape{1, 0})
	require.Equal(t, NotIsolated, judged(trial).Verdict)
	trial = trialOf(growing(first), tensor.Shape{1, 0})
	trial.MayBegin = false
	require.Equal(t, Isolated, judged(trial).Verdict)

	trial = trialOf(growing(never), tensor.Shape{1, 0})
	require.Equal(t, map[InputAxis]Change{{1, 0}: Stays, {1, 1}: Changes}, trial.StateChanges())
	begun, err := trial.RunBeginning()
	require.NoError(t, err)
	require.NotEmpty(t, begun)
	for _, shapes := range begun {
		require.Positive(t, shapes[1][1], "the cache has grown from nothing")
	}
}

// TestDifference: each element has its own allowance, a share of its size and a smaller one
// of the tensor's median, so that a large number hides nothing next to it.
func TestDifference(t *testing.T) {
	numbers := func(values ...float64) []byte {
		var data []byte
		for _, v := range values {
			data = append(data, tensor.FloatElement(v, tensor.FP32)...)
		}
		return data
	}
	for name, c := range map[string]struct {
		got, want []float64
		differ    bool
	}{
		"equal":                         {[]float64{1, 2}, []float64{1, 2}, false},
		"rounding":                      {[]float64{1.0005, 2}, []float64{1, 2}, false},
		"one is off":                    {[]float64{1, 2.1}, []float64{1, 2}, true},
		"next to a large number":        {[]float64{1e6, 1, 1.1}, []float64{1e6, 1, 1}, true},
		"the remainder of larger ones":  {[]float64{100, 100, 0.01}, []float64{100, 100, 0}, false},
		"another sign":                  {[]float64{-1, 1}, []float64{1, 1}, true},
		"what is not a number, in both": {[]float64{nan(), 1}, []float64{nan(), 1}, false},
		"what is not a number, in one":  {[]float64{nan(), 1}, []float64{1, 1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, want, differ := Difference(numbers(c.got...), numbers(c.want...), tensor.FP32, 1e-3)
			require.Equal(t, c.differ, differ, "%v for %v", got, want)
		})
	}
	got, want, _ := Difference(numbers(1, 5, 7), numbers(1, 2, 3), tensor.FP32, 1e-3)
	require.Equal(t, []float64{5, 2}, []float64{got, want}, "the first pair")
}

func nan() float64 {
	zero := 0.0
	return zero / zero
}

// TestLaneOf: lanes are taken and joined along any axis; strings lie lane by lane.
func TestLaneOf(t *testing.T) {
	lanes := []lane{{{1, 2, 3, 4}}, {{5, 6, 7, 8}}}
	for axis, shape := range map[int]tensor.Shape{0: {1, 4}, 1: {2, 1, 2}} {
		want := [][]byte{{1, 2, 3, 4, 5, 6, 7, 8}, {1, 2, 5, 6, 3, 4, 7, 8}}[axis]
		data, err := joinLanes(shape, axis, tensor.Uint8, lanes, 0)
		require.NoError(t, err)
		require.Equal(t, want, data)
		joined := &onnx.Tensor{DType: tensor.Uint8, Shape: shape.With(axis, 2), Data: statebuffer.Block{Bytes: data}}
		require.Equal(t, []byte{5, 6, 7, 8}, laneOf(joined, axis, 1))
		require.Nil(t, laneOf(joined, axis, 2), "it has no such lane")
	}

	words := lane{{1, 0, 0, 0, 'a'}}
	longer := lane{{2, 0, 0, 0, 'b', 'c'}}
	data, err := joinLanes(tensor.Shape{1, 1}, 0, tensor.Bytes, []lane{words, longer}, 0)
	require.NoError(t, err)
	joined := &onnx.Tensor{DType: tensor.Bytes, Shape: tensor.Shape{2, 1}, Data: statebuffer.Block{Bytes: data}}
	require.Equal(t, longer[0], laneOf(joined, 0, 1))
	joined.Data.Bytes = data[:len(data)-1]
	require.Nil(t, laneOf(joined, 0, 1), "the last string is cut")
}
