package backend

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// TestMaskProof: what shows that the mask hides padding leaves nothing.
func TestMaskProof(t *testing.T) {
	model, c, _ := maskedModel(0)
	in, log := model.logged(t, c)
	require.Len(t, log.having("model=model length=4099 runs=113"), 1, "%v", *log.lines)
	require.Empty(t, log.having("WARN"))
	require.Empty(t, in.separate)
	second, err := in.model.NewInstance(InstanceInfo{Name: "model_1", Kind: "cpu"})
	require.NoError(t, err)
	second.Close()
	require.Len(t, log.having("in trial runs"), 1, "once for all instances")
	require.Zero(t, in.store.Counters())
	require.Zero(t, in.store.Usage().Live)
	for _, failing := range []int64{0, 1} { // whatever extents it does not take
		model, c, _ := maskedModel(0)
		inner := model.run
		model.run = func(inputs, outputs []onnx.Tensor) error {
			if inputs[0].Shape[1] == 3 || inputs[0].Shape[1] == failing {
				return errInjected
			}
			return inner(inputs, outputs)
		}
		_, log := model.logged(t, c)
		require.Empty(t, log.having("WARN"))
	}
}

// TestMaskTakenForALength: a model that counts what the mask shows, and takes as many
// numbers from the left, is right as long as nothing is padded.
func TestMaskTakenForALength(t *testing.T) {
	model, c, seen := maskedModel(0)
	inner := model.run
	model.run = func(inputs, outputs []onnx.Tensor) error {
		lanes, total := inputs[2].Shape[0], inputs[2].Shape[1]
		mask := numbers(inputs[2].Data.Bytes)
		for lane := range lanes { // the same number of ones, from the left
			ones := int32(0)
			for at := range total {
				ones += mask[lane*total+at]
			}
			for at := range total {
				copy(inputs[2].Data.Bytes[4*(lane*total+at):], int32s(int32(index(int32(at) < ones))))
			}
		}
		return inner(inputs, outputs)
	}
	in, log := model.logged(t, c)
	require.Len(t, log.having("WARN"), 1, "%v", *log.lines)
	require.Len(t, log.having(runSeparately+`the mask "Mask" does not hide padding`), 1, "%v", *log.lines)
	send(t, in, stepOf(1, true, 1), stepOf(2, true, 3))
	got := send(t, in, stepOf(1, false, 1), stepOf(2, false, 1))
	require.Equal(t, []int32{1, 1, 1, 1}, *seen, "the last run has the second one alone")
	require.Equal(t, []int32{4}, numbers(got[0].outputs[0]))
	require.Equal(t, []int32{8}, numbers(got[1].outputs[0]))
	require.Len(t, log.having("WARN"), 1)
}

// TestWindowFoundAtLoad: a model that drops what is old does not share runs of unequal lengths.
func TestWindowFoundAtLoad(t *testing.T) {
	model, c, _ := maskedModel(4)
	_, log := model.logged(t, c)
	require.Len(t, log.having("WARN"), 1)
	require.Len(t, log.having(runSeparately+`the mask "Mask" needs a model`), 1, "%v", *log.lines)
}

// TestFiniteBias: a mask that is a bias does not hide padding from scores below it.
func TestFiniteBias(t *testing.T) {
	for bias, wrong := range map[float64]bool{-10: true, -100: true, -10000: false} {
		s := &scripted{sig: onnx.Signature{
			Inputs:  []onnx.TensorInfo{info("Input", tensor.FP32, -1, -1), info("Cache", tensor.FP32, -1, -1), info("Mask", tensor.Int32, -1, -1)},
			Outputs: []onnx.TensorInfo{info("Output", tensor.FP32, -1, 1), info("NewCache", tensor.FP32, -1, -1)},
		}}
		s.nameBatch()
		s.run = func(inputs, outputs []onnx.Tensor) error {
			lanes, rows, old := inputs[0].Shape[0], inputs[0].Shape[1], inputs[1].Shape[1]
			mask := numbers(inputs[2].Data.Bytes)
			var answers, caches []byte
			for lane := range lanes {
				all := append(append([]byte{}, inputs[1].Data.Bytes[4*lane*old:4*(lane+1)*old]...), inputs[0].Data.Bytes[4*lane*rows:4*(lane+1)*rows]...)
				scores := make([]float64, old+rows)
				for at := range scores {
					scores[at] = float32At(all, at) + bias*float64(1-mask[lane*(old+rows)+int64(at)])
				}
				most, sum, weighted := slices.Max(scores), 0.0, 0.0
				for at, score := range scores {
					weight := math.Exp(score - most)
					sum, weighted = sum+weight, weighted+weight*float32At(all, at)
				}
				answers, caches = append(answers, tensor.FloatElement(weighted/sum, tensor.FP32)...), append(caches, all...)
			}
			outputs[0].Data.Bytes = append(outputs[0].Data.Bytes[:0], answers...)
			outputs[1].Data, outputs[1].Shape = statebuffer.Block{Bytes: caches, Size: int64(len(caches))}, tensor.Shape{lanes, old + rows}
			return nil
		}
		c := cacheConfig()
		c.Inputs[0].DataType, c.Outputs[0].DataType = "TYPE_FP32", "TYPE_FP32"
		c.Inputs[0].Dims, c.Outputs[0].Dims = tensor.Shape{-1}, tensor.Shape{1}
		c.Parameters["derived_inputs"] = config.Value{String: "Mask = mask(Cache, Input)"}
		in, log := s.logged(t, c)
		require.Equal(t, wrong, in.separate != "", "%v: %v", bias, *log.lines)
	}
}

func float32At(data []byte, element int) float64 {
	return float64(math.Float32frombits(binary.NativeEndian.Uint32(data[4*element:])))
}

// TestMaskWithOptionalInputs: an input that requests may leave out is part of the trials.
func TestMaskWithOptionalInputs(t *testing.T) {
	for _, wrong := range []bool{false, true} {
		model, c, _ := maskedModel(0)
		model.sig.Inputs = append(model.sig.Inputs, info("Extra", tensor.Int32, -1, 1))
		model.sig.Inputs[3].Symbols = []string{"batch", ""}
		model.sig.Inputs[3].Optional = true
		c.Inputs = append(c.Inputs, config.TensorConfig{Name: "Extra", DataType: "TYPE_INT32", Dims: tensor.Shape{1}, Optional: true})
		inner := model.run
		with := 0
		model.run = func(inputs, outputs []onnx.Tensor) error {
			if err := inner(inputs, outputs); err != nil || inputs[3].DType == tensor.Invalid {
				return err
			}
			with++
			lanes, total := inputs[2].Shape[0], inputs[2].Shape[1]
			for lane := range lanes {
				if wrong && numbers(inputs[2].Data.Bytes)[lane*total] == 0 {
					outputs[0].Data.Bytes[4*lane]++
				}
			}
			return nil
		}
		in, log := model.logged(t, c)
		require.Equal(t, wrong, in.separate != "", "%v", *log.lines)
		require.NotZero(t, with)
	}
}

// TestMaskLeavesLateTraces: what padding does to a state that answers show only some
// steps later is found, too.
func TestMaskLeavesLateTraces(t *testing.T) {
	model, c, _ := maskedModel(0)
	inner := model.run
	traces := map[int32]int{} // of a cache's last number, the runs since padding was seen
	model.run = func(inputs, outputs []onnx.Tensor) error {
		lanes, total, old := inputs[2].Shape[0], inputs[2].Shape[1], inputs[1].Shape[1]
		mask, cache := numbers(inputs[2].Data.Bytes), numbers(inputs[1].Data.Bytes)
		if err := inner(inputs, outputs); err != nil {
			return err
		}
		after := numbers(outputs[1].Data.Bytes)
		for lane := range lanes {
			age, traced := 0, false
			if old > 0 {
				age, traced = traces[cache[(lane+1)*old-1]], traces[cache[(lane+1)*old-1]] > 0
			}
			if traced || total > 0 && mask[lane*total] == 0 {
				last := after[(lane+1)*total-1]
				if last < 1000 { // make it one of a kind
					last = int32(1000 + len(traces))
					copy(outputs[1].Data.Bytes[4*((lane+1)*total-1):], int32s(last))
				}
				if traces[last] = age + 1; age+1 == 3 {
					outputs[0].Data.Bytes[4*lane]++
				}
			}
		}
		return nil
	}
	_, log := model.logged(t, c)
	require.Len(t, log.having(runSeparately+`the mask "Mask" does not hide padding`), 1, "%v", *log.lines)
}

// TestMaskOverTime: a model for which the time is too short is not padded, whichever
// trial it is too short for.
func TestMaskOverTime(t *testing.T) {
	model, c, _ := maskedModel(0)
	in, _ := model.logged(t, c)
	inner := model.run
	for last, bounded := range map[int]bool{1: false, 10: false, 26: false, 80: true, 105: true} {
		until := time.Now().Add(50 * time.Millisecond)
		runs := 0
		model.run = func(inputs, outputs []onnx.Tensor) error {
			if runs++; runs == last {
				time.Sleep(time.Until(until) + time.Millisecond)
			}
			return inner(inputs, outputs)
		}
		ran, lengths, err := in.tryMasks(until)
		if bounded { // by what was tried
			require.NoError(t, err)
			require.ErrorIs(t, lengths.why, errTimeOver, "%d runs", ran)
			require.Greater(t, lengths.reached[0], int64(15))
			require.Less(t, lengths.reached[0], int64(4000))
			continue
		}
		require.ErrorContains(t, err, "the time ran out", "%d runs", ran)
		require.ErrorContains(t, err, `the mask "Mask" hides padding`)
	}
}

// TestMaskNotJudged: where nothing shows that a mask hides padding, nothing is padded,
// and that is said once.
func TestMaskNotJudged(t *testing.T) {
	for name, tt := range map[string]struct {
		run  func(inner func(inputs, outputs []onnx.Tensor) error) func(inputs, outputs []onnx.Tensor) error
		want string
	}{
		"it fails with all that is tried": {func(func(inputs, outputs []onnx.Tensor) error) func(inputs, outputs []onnx.Tensor) error {
			return func(inputs, outputs []onnx.Tensor) error { return errInjected }
		}, "error during inference: injected"},
		"there is chance in it": {func(inner func(inputs, outputs []onnx.Tensor) error) func(inputs, outputs []onnx.Tensor) error {
			runs := int32(0)
			return func(inputs, outputs []onnx.Tensor) error {
				err := inner(inputs, outputs)
				runs++
				outputs[0].Data.Bytes[0] += byte(runs)
				return err
			}
		}, `output "Output" differs`},
		"no answer depends on the state": {func(inner func(inputs, outputs []onnx.Tensor) error) func(inputs, outputs []onnx.Tensor) error {
			return func(inputs, outputs []onnx.Tensor) error {
				err := inner(inputs, outputs)
				clear(outputs[0].Data.Bytes)
				return err
			}
		}, "no answer depends on earlier requests"},
	} {
		t.Run(name, func(t *testing.T) {
			model, c, seen := maskedModel(0)
			inner := model.run
			model.run = tt.run(inner)
			in, log := model.logged(t, c)
			require.Len(t, log.having(runSeparately), 1, "%v", *log.lines)
			require.Len(t, log.having(`that the mask "Mask" hides padding`), 1, "%v", *log.lines)
			model.run = inner
			send(t, in, stepOf(1, true, 1), stepOf(2, true, 3))
			got := send(t, in, stepOf(1, false, 1), stepOf(2, false, 1))
			require.Equal(t, []int32{1, 1, 1, 1}, *seen)
			require.Equal(t, []int32{4}, numbers(got[0].outputs[0]))
			require.Equal(t, []int32{8}, numbers(got[1].outputs[0]))
		})
	}
}

// pastMasked is a model whose mask covers what it has kept, and not what a step brings.
func pastMasked(window int64, rows int64) (*scripted, *config.Config, *[]unevenRun) {
	s := &scripted{sig: onnx.Signature{
		Inputs:  []onnx.TensorInfo{info("Input", tensor.Int32, -1, rows), info("Cache", tensor.Int32, -1, -1), info("Mask", tensor.Int32, -1, -1)},
		Outputs: []onnx.TensorInfo{info("Output", tensor.Int32, -1, 1), info("NewCache", tensor.Int32, -1, -1)},
	}}
	s.nameBatch()
	runs := &[]unevenRun{}
	s.run = func(inputs, outputs []onnx.Tensor) error {
		x, cache, mask := numbers(inputs[0].Data.Bytes), numbers(inputs[1].Data.Bytes), numbers(inputs[2].Data.Bytes)
		lanes, rows, old := inputs[0].Shape[0], inputs[0].Shape[1], inputs[1].Shape[1]
		*runs = append(*runs, unevenRun{lanes, old})
		if !inputs[2].Shape.Equal(tensor.Shape{lanes, old}) {
			return status.Errorf(status.InvalidArg, "the mask has the shape %v", inputs[2].Shape)
		}
		kept := min(old+rows, window)
		var sums, caches []int32
		for lane := range lanes {
			sum := int32(0)
			for at := range old {
				sum += mask[lane*old+at] * (cache[lane*old+at] + 1)
			}
			all := append(append([]int32{}, cache[lane*old:(lane+1)*old]...), x[lane*rows:(lane+1)*rows]...)
			sums, caches = append(sums, sum), append(caches, all[old+rows-kept:]...)
		}
		outputs[0].Data.Bytes = append(outputs[0].Data.Bytes[:0], int32s(sums...)...)
		outputs[1].Data, outputs[1].Shape = statebuffer.Block{Bytes: int32s(caches...), Size: 4 * lanes * kept}, tensor.Shape{lanes, kept}
		return nil
	}
	c := cacheConfig()
	c.Inputs[0].Dims, c.Outputs[0].Dims = tensor.Shape{rows}, tensor.Shape{1}
	c.Parameters["max_state_bytes"] = config.Value{String: "0"}
	c.Parameters["derived_inputs"] = config.Value{String: "Mask = mask(Cache)"}
	return s, c, runs
}

// TestMaskOfStatesAlone: where the mask names no input, each step appends what the first
// one of a sequence has appended; a window that is reached shows by that, too.
func TestMaskOfStatesAlone(t *testing.T) {
	const steps = 50
	for _, window := range []int64{70, 71, 1000} {
		model, c, runs := pastMasked(window, 2)
		in, log := model.logged(t, c)
		require.Len(t, log.having("run separately if one"), 1, "%v", *log.lines)
		require.Equal(t, []int64{2}, in.grows)
		*runs = nil
		sums := map[uint64][]int32{}
		for step := range steps {
			var requests []Request
			for id := uint64(1); id <= 2; id++ {
				if id == 2 && step < 3 {
					continue
				}
				requests = append(requests, Request{Sequence: SequenceID{Number: id}, Start: len(sums[id]) == 0, Inputs: intInput(tensor.Shape{1, 2}, int32(step), int32(id))})
			}
			for i, got := range succeed(t, in, requests...) {
				id := uint64(i + 1)
				want := int32(0)
				for _, v := range sums[id][max(0, len(sums[id])-int(window)):] {
					want += v + 1
				}
				require.Equal(t, []int32{want}, numbers(got.outputs[0]), "window %d, step %d, sequence %d", window, step, id)
				sums[id] = append(sums[id], int32(step), int32(id))
			}
		}
		require.Contains(t, *runs, unevenRun{2, 8}, "unequal lengths share runs")
		if window == 1000 {
			require.Contains(t, *runs, unevenRun{2, 2 * (steps - 1)})
		}
	}
}

// TestMaskOfStatesAloneWithOpenInputs: then what a step appends is not known.
func TestMaskOfStatesAloneWithOpenInputs(t *testing.T) {
	model, c, _ := pastMasked(1000, -1)
	_, log := model.logged(t, c)
	require.Len(t, log.having(runSeparately+`the mask "Mask" names no input`), 1, "%v", *log.lines)
}

// TestAnswersApart: how far apart two answers may be.
func TestAnswersApart(t *testing.T) {
	for dtype, off := range map[tensor.DType]float64{tensor.FP64: 1e-8, tensor.FP32: 1e-3, tensor.FP16: 0.1, tensor.BF16: 0.5} {
		trial := &maskTrial{in: &Instance{plan: &plan.Plan{Outputs: []plan.IO{{IOTensor: onnx.IOTensor{Name: "y", DType: dtype}}}}}}
		answer := func(values ...float64) *trialAnswer {
			r := &trialAnswer{shapes: []tensor.Shape{{1, int64(len(values))}}, data: [][]byte{nil}}
			for _, v := range values {
				r.data[0] = append(r.data[0], tensor.FloatElement(v, dtype)...)
			}
			return r
		}
		require.Empty(t, trial.differ(answer(1, -4), answer(1, -4)))
		require.Empty(t, trial.differ(answer(1, -4), answer(1, -4*(1+closeness[dtype]/2))))
		require.Contains(t, trial.differ(answer(1+off, -4), answer(1, -4)), `output "y" has `)
		require.Contains(t, trial.differ(answer(-1e9, 1, 2, 3*(1+off)), answer(-1e9, 1, 2, 3)), `output "y" has `, "a large number hides nothing")
		require.Empty(t, trial.differ(answer(-4, 2, closeness[dtype]/10), answer(-4, 2, 0)), "what is left of larger numbers")
		require.Contains(t, trial.differ(answer(1), answer(1, -4)), `output "y" has shape [1,1] and not [1,2]`)
		nan, inf := answer(1), answer(1)
		copy(nan.data[0], tensor.FloatElement(math.NaN(), dtype))
		copy(inf.data[0], tensor.FloatElement(math.Inf(1), dtype))
		require.Empty(t, trial.differ(nan, nan))
		require.Empty(t, trial.differ(inf, inf))
		for _, odd := range []*trialAnswer{nan, inf} {
			require.NotEmpty(t, trial.differ(odd, answer(1)))
			require.NotEmpty(t, trial.differ(answer(1), odd))
		}
	}
}
