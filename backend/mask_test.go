package backend

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// maskedModel has a cache that gets one number for each row of the input, the sum of
// the row, and forgets what is older than the window, unless that is 0. The output is
// the sum of all that the mask shows, each number with one more; seen is the mask of
// the last run.
func maskedModel(window int64) (model *scripted, c *config.Config, seen *[]int32) {
	s := &scripted{sig: onnx.Signature{
		Inputs:  []onnx.TensorInfo{info("Input", tensor.Int32, -1, -1, -1), info("Cache", tensor.Int32, -1, -1), info("Mask", tensor.Int32, -1, -1)},
		Outputs: []onnx.TensorInfo{info("Output", tensor.Int32, -1, 1), info("NewCache", tensor.Int32, -1, -1)},
	}}
	s.nameBatch()
	seen = new([]int32)
	s.run = func(inputs, outputs []onnx.Tensor) error {
		x, cache, mask := numbers(inputs[0].Data.Bytes), numbers(inputs[1].Data.Bytes), numbers(inputs[2].Data.Bytes)
		lanes, rows, width, old := inputs[0].Shape[0], inputs[0].Shape[1], inputs[0].Shape[2], inputs[1].Shape[1]
		*seen = mask
		all := old + rows
		if !inputs[2].Shape.Equal(tensor.Shape{lanes, all}) {
			return status.Errorf(status.InvalidArg, "the mask has the shape %v: want %v", inputs[2].Shape, tensor.Shape{lanes, all})
		}
		kept := all
		if window > 0 {
			kept = min(all, window)
		}
		var sums, caches []int32
		for lane := range lanes {
			row, sum := cache[lane*old:(lane+1)*old:(lane+1)*old], int32(0)
			for at := range rows {
				n := int32(0)
				for _, v := range x[(lane*rows+at)*width:][:width] {
					n += v
				}
				row = append(row, n)
			}
			for at, n := range row {
				sum += mask[lane*all+int64(at)] * (n + 1)
			}
			sums, caches = append(sums, sum), append(caches, row[all-kept:]...)
		}
		outputs[0].Data.Bytes = append(outputs[0].Data.Bytes[:0], int32s(sums...)...)
		outputs[1].Data = statebuffer.Block{Bytes: int32s(caches...), Size: 4 * lanes * kept}
		outputs[1].Shape = tensor.Shape{lanes, kept}
		return nil
	}
	c = cacheConfig()
	c.Inputs[0].Dims, c.Outputs[0].Dims = tensor.Shape{-1, -1}, tensor.Shape{1}
	c.Parameters["max_state_bytes"] = config.Value{String: "0"}
	c.Parameters["derived_inputs"] = config.Value{String: "Mask = mask(Cache, Input:1)"}
	return s, c, seen
}

// row asks for a step of one row that brings one number.
func row(id uint64, start bool, value int32) Request {
	return Request{Sequence: SequenceID{Number: id}, Start: start, Inputs: intInput(tensor.Shape{1, 1, 1}, value)}
}

// step asks for a step that brings that many elements.
func step(id uint64, start bool, elements int) Request {
	return Request{Sequence: SequenceID{Number: id}, Start: start,
		Inputs: intInput(tensor.Shape{1, int64(elements), 1}, make([]int32, elements)...)}
}

// hollow asks for one that is said to bring many, and has no byte.
func hollow(id uint64, start bool, elements int64) Request {
	return Request{Sequence: SequenceID{Number: id}, Start: start, Inputs: intInput(tensor.Shape{1, elements, 0})}
}

// TestMask: sequences of unequal length share a run, and padding is masked.
func TestMask(t *testing.T) { eachScheduler(t, mask) }

func mask(t *testing.T, on func(*setup)) {
	model, c, seen := maskedModel(0)
	in := model.loaded(t, scheduled(c, on))
	send(t, in, step(1, true, 1), step(2, true, 3))
	got := send(t, in, step(1, false, 2), step(2, false, 2))
	require.Equal(t, []int32{0, 0, 1, 1, 1, 1, 1, 1, 1, 1}, *seen)
	require.Equal(t, []int32{3}, numbers(got[0].outputs[0]))
	require.Equal(t, []int32{5}, numbers(got[1].outputs[0]))
}

// TestMaskOfAnyLength: a mask is made from what a request says, not from what it
// brings; one that is beyond all measure is refused alone, before anything is made.
func TestMaskOfAnyLength(t *testing.T) { eachQueueing(t, maskOfAnyLength) }

func maskOfAnyLength(t *testing.T, on func(*setup)) {
	for _, length := range []int64{1<<63 - 1, 1 << 61, 1<<61 - 2, 1 << 32, generatedMost/4 + 1} {
		model, c, _ := maskedModel(0)
		in := model.loaded(t, scheduled(c, on))
		succeed(t, in, step(1, true, 2), step(2, true, 2))
		held := in.io.bytes()
		got := send(t, in, hollow(2, false, length), hollow(3, true, length), step(1, false, 2), step(4, true, 2))
		require.ErrorContains(t, got[0].err, `input "Mask": a mask of `)
		require.Equal(t, status.InvalidArg, status.CodeOf(got[0].err))
		require.Error(t, got[1].err, "%d", length)
		require.NoError(t, got[2].err)
		require.NoError(t, got[3].err)
		require.Less(t, in.io.bytes(), held+1024, "length %d", length)
		succeed(t, in, step(1, false, 2), step(2, false, 2), step(4, false, 2))
	}
}

// TestMaskBound: the longest mask that there can be.
func TestMaskBound(t *testing.T) { eachScheduler(t, maskBound) }

func maskBound(t *testing.T, on func(*setup)) {
	model, c, _ := maskedModel(0)
	in := model.loaded(t, scheduled(c, on))
	most := int64(generatedMost / 4)
	r := hollow(1, true, most)
	require.NoError(t, in.checkMasks(&r, nil))
	r = hollow(1, true, most+1)
	require.ErrorContains(t, in.checkMasks(&r, nil), `input "Mask": a mask of length 0`)
}

// twoCaches is a maskedModel that has the signature and the pairs of a second cache.
func twoCaches() (*scripted, *config.Config) {
	model, c, _ := maskedModel(0)
	in, out := info("Cache2", tensor.Int32, -1, -1), info("NewCache2", tensor.Int32, -1, -1)
	in.Symbols[0], out.Symbols[0] = "batch", "batch"
	model.sig.Inputs, model.sig.Outputs = append(model.sig.Inputs, in), append(model.sig.Outputs, out)
	c.Parameters["state_pairs"] = config.Value{String: "<<<Cache*, NewCache*>>>"}
	return model, c
}

// TestMaskOfStatesOfOtherLengths: one mask cannot cover states that differ in
// length; a request whose states do gets an error, and no other does.
func TestMaskOfStatesOfOtherLengths(t *testing.T) { eachScheduler(t, maskOfStatesOfOtherLengths) }

func maskOfStatesOfOtherLengths(t *testing.T, on func(*setup)) {
	model, c := twoCaches()
	inner := model.run
	model.run = func(inputs, outputs []onnx.Tensor) error {
		if err := inner(inputs, outputs); err != nil {
			return err
		}
		outputs[2] = outputs[1]
		if added := inputs[0].Shape[1]; added == 7 { // of which the second cache gets six
			outputs[2].Shape = outputs[1].Shape.With(1, outputs[1].Shape[1]-1)
			bytes, err := outputs[2].Shape.Bytes(tensor.Int32)
			outputs[2].Data = outputs[1].Data.At(0, bytes)
			return err
		}
		return nil
	}
	c.Parameters["derived_inputs"] = config.Value{String: "Mask = mask(Cache*, Input:1)"}
	instance := model.loaded(t, scheduled(c, on))
	succeed(t, instance, step(1, true, 7), step(2, true, 2))
	got := send(t, instance, step(1, false, 1), step(2, false, 1))
	require.ErrorContains(t, got[0].err, `input "Mask": the states "Cache" and "Cache2"`)
	require.Equal(t, []int32{3}, numbers(got[1].outputs[0]))
	require.NoError(t, send(t, instance, step(1, true, 1))[0].err)
}

// TestMaskThatForgetsAState: the warning names the state that grows and that no mask covers,
// with a value that is right.
func TestMaskThatForgetsAState(t *testing.T) { eachScheduler(t, maskThatForgetsAState) }

func maskThatForgetsAState(t *testing.T, on func(*setup)) {
	for _, states := range []string{"Cache", "Cache*"} {
		t.Run(states, func(t *testing.T) {
			model, c := twoCaches()
			inner := model.run
			model.run = func(inputs, outputs []onnx.Tensor) error {
				err := inner(inputs, outputs)
				outputs[2] = outputs[1]
				outputs[2].Data.Bytes = slices.Clone(outputs[1].Data.Bytes)
				return err
			}
			c.Parameters["derived_inputs"] = config.Value{String: "Mask = mask(" + states + ", Input:1)"}
			_, log := model.logged(t, scheduled(c, on))
			lines := log.having(runSeparately)
			if states == "Cache*" {
				require.Empty(t, lines)
				return
			}
			require.Len(t, lines, 1)
			require.Contains(t, lines[0], "it does not name Cache2,")
			require.Contains(t, lines[0], "'Mask = mask(Cache*, Input:1)'")
		})
	}
}

// masked loads a model with these derived inputs, which fails for the reason that is
// wanted, or not at all.
func masked(t *testing.T, m *scripted, c *config.Config, derived, want string) {
	t.Helper()
	c.Parameters["derived_inputs"] = config.Value{String: derived}
	_, err := m.instance(t, c, "")
	if want == "" {
		require.NoError(t, err)
	} else {
		require.ErrorContains(t, err, want)
	}
}

// TestMaskOfNameWithColon: what is a name as a whole has no axis, and the advice is
// right for it.
func TestMaskOfNameWithColon(t *testing.T) {
	for value, want := range map[string]string{
		"Mask = mask(Cache, Input:0:1)": "",
		"Mask = mask(Cache, Input:0)":   `of input "Input:0" [1,-1,-1]`,
	} {
		model, c, _ := maskedModel(0)
		model.sig.Inputs[0].Name, c.Inputs[0].Name = "Input:0", "Input:0"
		masked(t, model, c, value, want)
	}
}

// TestMaskAxis: the axis that is the length of a mask's input can be said.
func TestMaskAxis(t *testing.T) { eachScheduler(t, maskAxis) }

func maskAxis(t *testing.T, on func(*setup)) {
	for value, want := range map[string]string{
		"Mask = mask(Cache, Input:1)":  "",
		"Mask = mask(Cache, Input:0)":  `say which axis of input "Input"`,
		"Mask = mask(Cache, Input:3)":  `say which axis of input "Input"`,
		"Mask = mask(Cache, Input: x)": `input "Mask": "Input: x": want an axis`,
	} {
		model, c, _ := maskedModel(0)
		masked(t, model, c, value, want)
	}
	model, c, seen := maskedModel(0)
	c.Parameters["derived_inputs"] = config.Value{String: "Mask = mask(Cache, Input:2)"}
	in := model.loaded(t, scheduled(c, on))
	send(t, in, Request{Sequence: SequenceID{Number: 1}, Start: true, Inputs: intInput(tensor.Shape{1, 1, 3}, 1, 2, 3)})
	require.Equal(t, []int32{1, 1, 1}, *seen)
}

// TestMaskOfAWindow: a model that forgets what is old makes a padded state no longer by
// what a step brings. Then the zeros in front of the shorter ones would have pushed
// their own values out, so whatever sequences share a batch, each gets the numbers that it
// gets alone.
func TestMaskOfAWindow(t *testing.T) { eachQueueing(t, maskOfAWindow) }

func maskOfAWindow(t *testing.T, on func(*setup)) {
	for _, window := range []int64{1, 4, 7, 12} {
		model, c, _ := maskedModel(window)
		in := model.loaded(t, scheduled(c, on))
		sent := map[uint64][]int32{}
		random := rand.New(rand.NewPCG(1, uint64(window)))
		for step := range 60 {
			var requests []Request
			var want []int32
			for id := uint64(1); id <= 4; id++ {
				if random.IntN(3) == 0 {
					continue
				}
				if random.IntN(20) == 0 {
					sent[id] = nil
				}
				value := int32(10*step) + int32(id)
				requests = append(requests, row(id, len(sent[id]) == 0, value))
				sent[id] = append(sent[id], value)
				sum := int32(0)
				for _, v := range sent[id][max(0, len(sent[id])-1-int(window)):] {
					sum += v + 1
				}
				want = append(want, sum)
			}
			for i, got := range succeed(t, in, requests...) {
				require.Equal(t, []int32{want[i]}, numbers(got.outputs[0]), "window %d, step %d, request %d", window, step, i)
			}
		}
	}
}

// TestMaskOfStatesThatBeginUnequal: no request could succeed, so nothing is loaded.
func TestMaskOfStatesThatBeginUnequal(t *testing.T) {
	model, c := twoCaches()
	c.Parameters["derived_inputs"] = config.Value{String: "Mask = mask(Cache*, Input:1)"}
	c.Parameters["initial_states"] = config.Value{String: "Cache = 1[1,5]; Cache2 = 1[1,4]"}
	_, err := model.instance(t, c, "")
	require.ErrorContains(t, err, `the states "Cache" and "Cache2" share a mask`)
}
