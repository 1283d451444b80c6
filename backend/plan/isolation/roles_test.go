package isolation

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnx/runnertest"
	"tritonstateful/internal/tensor"
)

// mixes is a model of one input and one output of the same shape, of which each lane is what
// mix makes of the lanes of the input.
func mixes(t *testing.T, dtype, dims string, mix func(x [][]float64, lane int) []float64) *runnertest.File {
	r := runnertest.NewFile(t, "x:"+dtype+dims, "y:"+dtype+dims)
	r.Runs = func(_ *onnx.Signature, inputs, outputs []onnx.Tensor) error {
		in := &inputs[0]
		x := make([][]float64, in.Shape[0])
		each := in.Data.Size / int64(in.DType.Size()) / in.Shape[0]
		for lane := range x {
			for at := range each {
				x[lane] = append(x[lane], runnertest.Element(in.Data.Bytes, in.DType, int64(lane)*each+at))
			}
		}
		runnertest.Allocate(&outputs[0], in.Shape...)
		for lane := range x {
			for at, value := range mix(x, lane) {
				runnertest.SetElement(outputs[0].Data.Bytes, in.DType, int64(lane)*each+int64(at), value)
			}
		}
		return nil
	}
	return r
}

// elementwise applies a function to each element of a lane and that of another one.
func elementwise(of func(own, other float64) float64, other func(lane, lanes int) int) func(x [][]float64, lane int) []float64 {
	return func(x [][]float64, lane int) []float64 {
		to := make([]float64, len(x[lane]))
		for at, own := range x[lane] {
			if to[at] = own; other(lane, len(x)) != lane {
				to[at] = of(own, x[other(lane, len(x))][at])
			}
		}
		return to
	}
}

// TestFewRuns: a model without open axes, and without inputs that all lanes of a run must have
// alike, is shown to have isolated lanes by one run of a lane and four of several. If it does
// not run with numbers below 0, these are tried apart.
func TestFewRuns(t *testing.T) {
	own := func(x [][]float64, lane int) []float64 { return x[lane] }
	r := mixes(t, "FP32", "[batch,32]", own)
	trial := trialOf(r)
	require.Equal(t, Isolated, judged(trial).Verdict)
	require.Equal(t, 1+len(mixed[0].runs), trial.Runs)

	before(r, func(inputs []onnx.Tensor) error {
		for at := range inputs[0].Data.Size / 4 {
			if runnertest.Element(inputs[0].Data.Bytes, tensor.FP32, at) < 0 {
				return errors.New("below 0")
			}
		}
		return nil
	})
	trial = trialOf(r)
	require.Equal(t, Isolated, judged(trial).Verdict)
	require.Greater(t, trial.Runs, 1+len(mixed[0].runs))
}

// TestWhichLaneCrosses: it does not matter which lane reaches which, nor by what.
func TestWhichLaneCrosses(t *testing.T) {
	between := map[string]func(lane, lanes int) int{
		"from the lane before":      func(lane, lanes int) int { return max(lane-1, 0) },
		"from the next lane":        func(lane, lanes int) int { return min(lane+1, lanes-1) },
		"around":                    func(lane, lanes int) int { return (lane + 1) % lanes },
		"from the other end":        func(lane, lanes int) int { return lanes - 1 - lane },
		"from the other half":       func(lane, lanes int) int { return (lane + lanes/2) % lanes },
		"from the first lane":       func(int, int) int { return 0 },
		"from the last lane":        func(_, lanes int) int { return lanes - 1 },
		"from the first to the 2nd": func(lane, _ int) int { return lane - index(lane == 1) },
		"from the 2nd to the first": func(lane, lanes int) int { return min(lane+index(lane == 0), lanes-1) },
		"from the last to the first": func(lane, lanes int) int {
			return max(lane, index(lane == 0)*(lanes-1))
		},
		"from the first to the last": func(lane, lanes int) int { return lane * index(lane != lanes-1) },
	}
	by := map[string]func(own, other float64) float64{
		"a sum":                  func(own, other float64) float64 { return own + other },
		"a little":               func(own, other float64) float64 { return own * (1 + 1e-6*other) },
		"another's place":        func(_, other float64) float64 { return other },
		"the larger one":         math.Max,
		"the smaller one":        math.Min,
		"what is below 0":        func(own, other float64) float64 { return own + math.Min(other, 0) },
		"what is below 0 of own": func(own, other float64) float64 { return own + math.Min(own, 0)*other },
		"a root":                 func(own, other float64) float64 { return own + math.Sqrt(other) },
		"roots":                  func(own, other float64) float64 { return math.Sqrt(own) + math.Sqrt(other) },
	}
	for _, dims := range []string{"[batch,8]", "[batch,32]", "[batch,3,16]", "[batch,4]", "[batch,4,5,6]", "[batch,time]"} {
		for where, other := range between {
			for how, of := range by {
				trial := trialOf(mixes(t, "FP32", dims, elementwise(of, other)))
				got := judged(trial)
				require.Equal(t, NotIsolated, got.Verdict, "%s: %s %s", dims, how, where)
			}
		}
	}
}

// TestShortContentsCross: with one element a lane, two lanes have every combination of two
// values, so that chance hides nothing that follows from one of them.
func TestShortContentsCross(t *testing.T) {
	for _, dtype := range []string{"BOOL", "INT64"} {
		for name, of := range map[string]func(own, other float64) float64{
			"or":        func(own, other float64) float64 { return float64(index(own != 0 || other != 0)) },
			"and":       func(own, other float64) float64 { return own * other },
			"different": func(own, other float64) float64 { return float64(index(own != other)) },
			"the other": func(_, other float64) float64 { return other },
			"maximum":   math.Max,
			"minimum":   math.Min,
		} {
			if dtype != "BOOL" && name == "or" {
				continue // of integers that are never all 0
			}
			next := func(lane, lanes int) int { return (lane + 1) % lanes }
			r := mixes(t, dtype, "[batch,1]", elementwise(of, next))
			require.Equal(t, NotIsolated, judged(trialOf(r)).Verdict, "%s of %s", name, dtype)
		}
	}
}

// TestLaneAlone: what depends on the place of a lane, or on the number of lanes, is seen where the
// same contents run alone.
func TestLaneAlone(t *testing.T) {
	for name, mix := range map[string]func(x [][]float64, lane int) float64{
		"its place":           func(_ [][]float64, lane int) float64 { return float64(lane) },
		"the number of lanes": func(x [][]float64, _ int) float64 { return float64(len(x)) },
	} {
		r := mixes(t, "FP32", "[batch,32]", func(x [][]float64, lane int) []float64 {
			to := make([]float64, len(x[lane]))
			for at, own := range x[lane] {
				to[at] = own + mix(x, lane)
			}
			return to
		})
		got := judged(trialOf(r))
		require.Equal(t, NotIsolated, got.Verdict, name)
		require.Contains(t, got.Why, "differs when it runs alone")
	}
}

// TestRoles: of any two roles, each shows that it is isolated from the other one.
func TestRoles(t *testing.T) {
	for name, roles := range map[string][]role{"three": inThree, "two": inTwo, "even and odd": evenAndOdd, "mixed": mixed} {
		for i, kept := range roles {
			require.Zero(t, kept.runs[0], name)
			require.Len(t, kept.runs, len(roles[0].runs))
			for k, changed := range roles {
				seen := i == k
				for a := range kept.runs {
					for b := range a {
						seen = seen || kept.runs[a] == kept.runs[b] && changed.runs[a] != changed.runs[b]
					}
				}
				require.True(t, seen, "%s: %d and %d", name, i, k)
			}
		}
	}
	for i, r := range mixed {
		require.False(t, r.contents[0].varied, "lane %d of the first run", i)
		require.True(t, r.contents[1].varied, "lane %d of others", i)
	}
}

func index(is bool) int {
	if is {
		return 1
	}
	return 0
}

// TestLargeAndSmallCross: a lane all of whose numbers are much smaller than usual, or larger, must
// not reach others by that, whichever lane it is.
func TestLargeAndSmallCross(t *testing.T) {
	largest := func(lane []float64) (most float64) {
		for _, value := range lane {
			most = max(most, math.Abs(value))
		}
		return most
	}
	for _, dims := range []string{"[batch,32]", "[batch,8]", "[batch,3,16]", "[batch,time]"} {
		for name, is := range map[string]func(lane []float64) bool{
			"small": func(lane []float64) bool { return largest(lane) < 0.1 },
			"large": func(lane []float64) bool { return largest(lane) > 10 },
		} {
			r := mixes(t, "FP32", dims, func(x [][]float64, lane int) []float64 {
				to := slices.Clone(x[lane])
				for other := range x {
					to[0] += float64(index(other != lane && is(x[other])))
				}
				return to
			})
			require.Equal(t, NotIsolated, judged(trialOf(r)).Verdict, "%s %s", dims, name)
		}
	}
}

// TestRunsOfRefused: candidates that are refused leave time for others. Shapes that contradict are
// seen at once, and a model without random operators repeats a run once.
func TestRunsOfRefused(t *testing.T) {
	r := sums(t, "x:FP32[batch,time]", never)
	after(r, func(y *onnx.Tensor) { runnertest.Allocate(y, 2*y.Shape[0]) })
	trial := trialOf(r)
	require.Equal(t, NotIsolated, judged(trial).Verdict)
	require.Equal(t, 2, trial.Runs)

	r = mixes(t, "FP32", "[batch,32]", elementwise(math.Max, func(lane, _ int) int { return max(lane-1, 0) }))
	for operator, repeats := range map[string]int{"Max": 1, "RandomNormalLike": 8} {
		r.Sig.Operators = map[string]int{operator: 1}
		trial = trialOf(r)
		require.Equal(t, NotIsolated, judged(trial).Verdict)
		require.Equal(t, 4+repeats, trial.Runs, operator)
	}
}

// TestLeftEmpty: whether a model leaves a state empty must not depend on what one lane has.
func TestLeftEmpty(t *testing.T) {
	r := runnertest.NewFile(t, "x:FP32[batch,8] s:FP32[batch,8]", "y:FP32[batch,8] s_out:FP32[batch,8]")
	r.Runs = func(_ *onnx.Signature, inputs, outputs []onnx.Tensor) error {
		small := false
		for i := range inputs {
			runnertest.Allocate(&outputs[i], inputs[i].Shape...)
			copy(outputs[i].Data.Bytes, inputs[i].Data.Bytes)
		}
		for at := range inputs[0].Data.Size / 4 {
			small = small || at%8 == 0 && math.Abs(runnertest.Element(inputs[0].Data.Bytes, tensor.FP32, at)) < 0.1
		}
		if small {
			runnertest.Allocate(&outputs[1], 0)
		}
		return nil
	}
	trial := trialOf(r, tensor.Shape{1, 8})
	trial.optional[1] = true
	got := judged(trial)
	require.Equal(t, NotIsolated, got.Verdict)
	require.Contains(t, got.Why, `"s_out"`)
}
