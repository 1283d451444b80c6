package backend

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// maskedModel has a cache that gets one element for each of the input's, and a mask;
// the output is the mask as the model sees it.
func maskedModel() (*scripted, *Config) {
	s := &scripted{sig: Signature{
		Inputs:  []TensorInfo{info("Input", tensor.Int32, -1, -1, -1), info("Cache", tensor.Int32, -1, -1), info("Mask", tensor.Int32, -1, -1)},
		Outputs: []TensorInfo{info("Output", tensor.Int32, -1, -1), info("NewCache", tensor.Int32, -1, -1)},
	}}
	for _, infos := range [][]TensorInfo{s.sig.Inputs, s.sig.Outputs} {
		for i := range infos {
			infos[i].Symbols[0] = "batch"
		}
	}
	s.run = func(inputs, outputs []Tensor) error {
		shape := tensor.Shape{inputs[0].Shape[0], inputs[1].Shape[1] + inputs[0].Shape[1]}
		bytes, err := shape.Bytes(tensor.Int32)
		if err != nil {
			return err
		}
		outputs[0].Data, outputs[0].Shape = inputs[2].Data, inputs[2].Shape
		outputs[1].Data, outputs[1].Shape = statebuffer.Block{Bytes: make([]byte, bytes), Size: bytes}, shape
		return nil
	}
	c := cacheConfig()
	c.Inputs[0].Dims = tensor.Shape{-1, -1}
	c.Parameters["max_state_bytes"] = Value{"0"}
	c.Parameters["derived_inputs"] = Value{"Mask = mask(Cache, Input:1)"}
	return s, c
}

// step asks for a step that brings so many elements.
func step(id uint64, start bool, elements int) Request {
	return Request{Sequence: SequenceID{Number: id}, Start: start,
		Inputs: intInput(tensor.Shape{1, int64(elements), 1}, make([]int32, elements)...)}
}

// hollow asks for one that is said to bring many, and has no byte.
func hollow(id uint64, start bool, elements int64) Request {
	return Request{Sequence: SequenceID{Number: id}, Start: start, Inputs: intInput(tensor.Shape{1, elements, 0})}
}

// TestMask: sequences of unequal length share a run, and padding is masked.
func TestMask(t *testing.T) {
	model, c := maskedModel()
	in, err := model.instance(t, c, "")
	require.NoError(t, err)
	send(t, in, step(1, true, 1), step(2, true, 3))
	got := send(t, in, step(1, false, 2), step(2, false, 2))
	require.Equal(t, []int32{0, 0, 1, 1, 1}, numbers(got[0].outputs[0]))
	require.Equal(t, []int32{1, 1, 1, 1, 1}, numbers(got[1].outputs[0]))
}

// TestMaskOfAnyLength: a mask is made from what a request says, not from what it
// brings; one that is beyond all measure is refused alone, before anything is made.
func TestMaskOfAnyLength(t *testing.T) {
	for _, length := range []int64{1<<63 - 1, 1 << 61, 1<<61 - 2, 1 << 32, maskMost/4 + 1} {
		model, c := maskedModel()
		in, err := model.instance(t, c, "")
		require.NoError(t, err)
		for _, a := range send(t, in, step(1, true, 2), step(2, true, 2)) {
			require.NoError(t, a.err)
		}
		held := in.io.bytes()
		got := send(t, in, hollow(2, false, length), hollow(3, true, length), step(1, false, 2), step(4, true, 2))
		require.ErrorContains(t, got[0].err, `input "Mask": a mask of `)
		require.Equal(t, InvalidArg, CodeOf(got[0].err))
		require.Error(t, got[1].err, "%d", length)
		require.NoError(t, got[2].err)
		require.NoError(t, got[3].err)
		require.Less(t, in.io.bytes(), held+1024, "length %d", length)
		for _, a := range send(t, in, step(1, false, 2), step(2, false, 2), step(4, false, 2)) {
			require.NoError(t, a.err, "length %d", length)
		}
	}
}

// TestMaskBound: the longest mask that there can be.
func TestMaskBound(t *testing.T) {
	model, c := maskedModel()
	in, err := model.instance(t, c, "")
	require.NoError(t, err)
	most := int64(maskMost / 4)
	r := hollow(1, true, most)
	require.NoError(t, in.checkMasks(&r, nil))
	r = hollow(1, true, most+1)
	require.EqualError(t, in.checkMasks(&r, nil), `input "Mask": a mask of length 0 for the states and 16777217 for the request: want at most 16777216 in all; send less in a request, or end the sequence`)
}

// TestMaskOfStatesOfOtherLengths: one mask cannot tell of states that differ in
// length; whose states do is told, and nobody else is harmed.
func TestMaskOfStatesOfOtherLengths(t *testing.T) {
	model, c := maskedModel()
	in, out := info("Cache2", tensor.Int32, -1, -1), info("NewCache2", tensor.Int32, -1, -1)
	in.Symbols[0], out.Symbols[0] = "batch", "batch"
	model.sig.Inputs, model.sig.Outputs = append(model.sig.Inputs, in), append(model.sig.Outputs, out)
	inner := model.run
	model.run = func(inputs, outputs []Tensor) error {
		if err := inner(inputs, outputs); err != nil {
			return err
		}
		outputs[2] = outputs[1]
		if added := inputs[0].Shape[1]; added == 3 { // of which the second cache gets two
			outputs[2].Shape = outputs[1].Shape.With(1, outputs[1].Shape[1]-1)
			bytes, err := outputs[2].Shape.Bytes(tensor.Int32)
			outputs[2].Data = outputs[1].Data.At(0, bytes)
			return err
		}
		return nil
	}
	c.Parameters["state_pairs"] = Value{"<<<Cache*, NewCache*>>>"}
	c.Parameters["derived_inputs"] = Value{"Mask = mask(Cache*, Input:1)"}
	instance, err := model.instance(t, c, "")
	require.NoError(t, err)
	for _, a := range send(t, instance, step(1, true, 3), step(2, true, 2)) {
		require.NoError(t, a.err)
	}
	got := send(t, instance, step(1, false, 1), step(2, false, 1))
	require.EqualError(t, got[0].err, `input "Mask": the states "Cache" and "Cache2" are to have one mask, and have the lengths 3 and 2: want them equal; give each a mask of its own, or none`)
	require.Equal(t, []int32{1, 1, 1}, numbers(got[1].outputs[0]))
	require.NoError(t, send(t, instance, step(1, true, 1))[0].err)
}

// masked loads a model with these derived inputs, which fails for the reason that is
// wanted, or not at all.
func masked(t *testing.T, m *scripted, c *Config, derived, want string) {
	t.Helper()
	c.Parameters["derived_inputs"] = Value{derived}
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
		"Mask = mask(Cache, Input:0)":   `say which axis of input "Input:0" [1,-1,-1] is its length, for example length_before(Input:0:1)`,
	} {
		model, c := maskedModel()
		model.sig.Inputs[0].Name, c.Inputs[0].Name = "Input:0", "Input:0"
		masked(t, model, c, value, want)
	}
}

// TestMaskAxis: the axis that is the length of a mask's input can be said.
func TestMaskAxis(t *testing.T) {
	for value, want := range map[string]string{
		"Mask = mask(Cache, Input:1)":  "",
		"Mask = mask(Cache, Input:0)":  `say which axis of input "Input"`,
		"Mask = mask(Cache, Input:3)":  `say which axis of input "Input"`,
		"Mask = mask(Cache, Input: x)": `input "Mask": "Input: x": want an axis counted from 0 behind the colon`,
	} {
		model, c := maskedModel()
		masked(t, model, c, value, want)
	}
	model, c := maskedModel()
	c.Parameters["derived_inputs"] = Value{"Mask = mask(Cache, Input:2)"}
	in, err := model.instance(t, c, "")
	require.NoError(t, err)
	r := Request{Sequence: SequenceID{Number: 1}, Start: true, Inputs: intInput(tensor.Shape{1, 1, 3}, 1, 2, 3)}
	require.Equal(t, []int32{1, 1, 1}, numbers(send(t, in, r)[0].outputs[0]))
}
