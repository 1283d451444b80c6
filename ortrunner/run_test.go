package ortrunner

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/ortrunner/onnxtest"
)

// TestAccumulate keeps a state in place over several steps.
func TestAccumulate(t *testing.T) {
	for _, batch := range []int64{1, 3, 16} {
		t.Run(fmt.Sprint(batch), func(t *testing.T) {
			r := open(t, accumulate(2))
			shape := tensor.Shape{batch, 2}
			x := zeros(t, r, tensor.FP32, shape)
			states := [2]onnx.Tensor{zeros(t, r, tensor.FP32, shape), zeros(t, r, tensor.FP32, shape)}
			y := zeros(t, r, tensor.FP32, shape)
			sums := make([]float32, batch*2)
			for step := range 5 {
				in := make([]float32, batch*2)
				for i := range in {
					in[i] = float32(step*100 + i)
					sums[i] += in[i]
				}
				copy(x.Data.Bytes, floats(t, r, shape, in...).Data.Bytes)
				old, fresh := states[step%2], states[(step+1)%2]
				require.NoError(t, r.Run([]onnx.Tensor{x, old}, []onnx.Tensor{y, fresh}))
				require.Equal(t, sums, elements[float32](t, fresh))
				for i, v := range elements[float32](t, y) {
					require.Equal(t, 2*sums[i], v)
				}
			}
		})
	}
}

// TestUnwantedOutput leaves an output out, in runs of changing size: it is neither
// computed into anything nor remembered.
func TestUnwantedOutput(t *testing.T) {
	model := accumulate(2)
	model.Nodes = append(model.Nodes, onnxtest.Node{Op: "Neg", Inputs: []string{"new"}, Outputs: []string{"z"}})
	model.Outputs = append([]onnxtest.Value{wide("z", 2)}, model.Outputs...)
	r := open(t, model)
	stages := map[int64][]onnx.Tensor{} // what a caller keeps for each size
	for _, batch := range []int64{4, 2, 2, 4, 1, 4} {
		shape := tensor.Shape{batch, 2}
		values := make([]float32, 2*batch)
		values[0] = float32(batch)
		if stages[batch] == nil {
			stages[batch] = []onnx.Tensor{{}, zeros(t, r, tensor.FP32, shape), zeros(t, r, tensor.FP32, shape)}
		}
		require.NoError(t, r.Run([]onnx.Tensor{floats(t, r, shape, values...), zeros(t, r, tensor.FP32, shape)}, stages[batch]))
		require.Equal(t, onnx.Tensor{}, stages[batch][0])
		require.Equal(t, 2*float32(batch), elements[float32](t, stages[batch][1])[0])
	}
}

// TestAllocatedOutput leaves an output of unknown length to the runner.
func TestAllocatedOutput(t *testing.T) {
	r := open(t, nonZero())
	for _, c := range []struct {
		in   []float32
		want []int64
	}{
		{[]float32{0, 5, 0, 6}, []int64{1, 3}},
		{[]float32{0, 0}, []int64{}},
		{[]float32{1, 2, 3}, []int64{0, 1, 2}},
	} {
		out := []onnx.Tensor{{DType: tensor.Int64}}
		require.NoError(t, r.Run([]onnx.Tensor{floats(t, r, tensor.Shape{int64(len(c.in))}, c.in...)}, out))
		require.Equal(t, tensor.Int64, out[0].DType)
		require.Equal(t, tensor.Shape{1, int64(len(c.want))}, out[0].Shape)
		require.Equal(t, c.want, elements[int64](t, out[0]))
		require.NotNil(t, out[0].Data.Bytes)
	}
}

// TestOptional overrides an initializer, or leaves it out.
func TestOptional(t *testing.T) {
	scalar := onnxtest.Dims()
	r := open(t, onnxtest.Model{
		Inputs: []onnxtest.Value{
			{Name: "scale", Type: onnxtest.Float, Dims: scalar},
			{Name: "x", Type: onnxtest.Float, Dims: scalar},
			{Name: "shift", Type: onnxtest.Float, Dims: scalar},
		},
		Initializers: []onnxtest.Tensor{
			{Name: "scale", Type: onnxtest.Float, Data: []float32{10}},
			{Name: "shift", Type: onnxtest.Float, Data: []float32{1}},
		},
		Nodes: []onnxtest.Node{
			{Op: "Mul", Inputs: []string{"x", "scale"}, Outputs: []string{"scaled"}},
			{Op: "Add", Inputs: []string{"scaled", "shift"}, Outputs: []string{"y"}},
		},
		Outputs: []onnxtest.Value{{Name: "y", Type: onnxtest.Float, Dims: scalar}},
	})
	info := r.Signature().Inputs
	require.Equal(t, "x", info[0].Name)
	require.False(t, info[0].Optional)
	require.ElementsMatch(t, []string{"scale", "shift"}, []string{info[1].Name, info[2].Name})
	require.True(t, info[1].Optional && info[2].Optional)

	given := map[string]onnx.Tensor{
		"x":     floats(t, r, tensor.Shape{}, 3),
		"scale": floats(t, r, tensor.Shape{}, 100),
		"shift": floats(t, r, tensor.Shape{}, 7),
	}
	run := func(names ...string) float32 {
		in := make([]onnx.Tensor, 3)
		for i := range info {
			for _, name := range names {
				if info[i].Name == name {
					in[i] = given[name]
				}
			}
		}
		y := zeros(t, r, tensor.FP32, tensor.Shape{})
		require.NoError(t, r.Run(in, []onnx.Tensor{y}))
		return elements[float32](t, y)[0]
	}
	require.EqualValues(t, 31, run("x"))
	require.EqualValues(t, 301, run("x", "scale"))
	require.EqualValues(t, 37, run("x", "shift"))
	require.EqualValues(t, 307, run("x", "scale", "shift"))
	require.EqualValues(t, 31, run("x"))

	err := r.Run(make([]onnx.Tensor, 3), leftOpen(r))
	require.ErrorContains(t, err, `input "x": it is INVALID: the model has FP32`)
}

// TestNoElements runs a batch of nothing.
func TestNoElements(t *testing.T) {
	r := open(t, accumulate(2))
	nothing := onnx.Tensor{DType: tensor.FP32, Shape: tensor.Shape{0, 2}}
	out := leftOpen(r)
	require.NoError(t, r.Run([]onnx.Tensor{nothing, nothing}, out))
	require.Equal(t, tensor.Shape{0, 2}, out[0].Shape)
	require.Zero(t, out[0].Data.Size)
}

// TestElementTypes passes every element type through, bit for bit.
func TestElementTypes(t *testing.T) {
	for e := range elementTypes {
		dtype := elementTypes[e].dtype
		if dtype == tensor.Invalid || dtype == tensor.Bytes {
			continue
		}
		t.Run(dtype.String(), func(t *testing.T) {
			value := func(name string) []onnxtest.Value {
				return []onnxtest.Value{{Name: name, Type: onnxtest.Type(e), Dims: onnxtest.Dims("n")}}
			}
			r := open(t, onnxtest.Model{
				Inputs:  value("x"),
				Nodes:   []onnxtest.Node{{Op: "Identity", Inputs: []string{"x"}, Outputs: []string{"y"}}},
				Outputs: value("y"),
			})
			require.Equal(t, dtype, r.Signature().Inputs[0].DType)
			require.Equal(t, dtype, r.Signature().Outputs[0].DType)
			bytes := make([]byte, 3*dtype.Size())
			for i := range bytes {
				bytes[i] = byte(i % 2) // what a bool may be
			}
			x := onnx.Tensor{Data: blockOf(t, r, bytes), DType: dtype, Shape: tensor.Shape{3}}
			y := zeros(t, r, dtype, tensor.Shape{3})
			require.NoError(t, r.Run([]onnx.Tensor{x}, []onnx.Tensor{y}))
			require.Equal(t, bytes, y.Data.Bytes)
		})
	}
}

// TestBadTensors makes runs that are refused, and a good one after each.
func TestBadTensors(t *testing.T) {
	r := open(t, accumulate(2))
	shape := tensor.Shape{1, 2}
	x, old := floats(t, r, shape, 1, 2), floats(t, r, shape, 10, 20)
	y, fresh := zeros(t, r, tensor.FP32, shape), zeros(t, r, tensor.FP32, shape)
	with := func(good onnx.Tensor, change func(*onnx.Tensor)) onnx.Tensor {
		change(&good)
		return good
	}
	short := with(x, func(x *onnx.Tensor) { x.Data = x.Data.At(0, 4) })
	wide := floats(t, r, tensor.Shape{1, 3}, 1, 2, 3)
	for name, c := range map[string]struct {
		in, out []onnx.Tensor
		want    string
	}{
		"too few inputs":   {[]onnx.Tensor{x}, []onnx.Tensor{y, fresh}, "1 inputs, the model has 2"},
		"too few outputs":  {[]onnx.Tensor{x, old}, []onnx.Tensor{y}, "1 outputs, the model has 2"},
		"short block":      {[]onnx.Tensor{short, old}, []onnx.Tensor{y, fresh}, `input "x": shape [1,2] of FP32 takes 8 bytes`},
		"short output":     {[]onnx.Tensor{x, old}, []onnx.Tensor{short, fresh}, `output "y": shape [1,2] of FP32 takes 8 bytes`},
		"type":             {[]onnx.Tensor{x, with(old, func(o *onnx.Tensor) { o.DType = tensor.Int32 })}, []onnx.Tensor{y, fresh}, `input "old": it is INT32: the model has FP32`},
		"not fixed":        {[]onnx.Tensor{with(x, func(x *onnx.Tensor) { x.Shape = tensor.Shape{-1, 2} }), old}, []onnx.Tensor{y, fresh}, `input "x": shape [-1,2] has an extent`},
		"wrong width":      {[]onnx.Tensor{wide, old}, []onnx.Tensor{y, fresh}, "for input: x"},
		"wrong rank":       {[]onnx.Tensor{floats(t, r, tensor.Shape{2}, 1, 2), old}, []onnx.Tensor{y, fresh}, "Invalid rank for input: x"},
		"batches differ":   {[]onnx.Tensor{floats(t, r, tensor.Shape{3, 2}, 1, 2, 3, 4, 5, 6), floats(t, r, tensor.Shape{2, 2}, 1, 2, 3, 4)}, leftOpen(r), "Add"},
		"output too large": {[]onnx.Tensor{x, old}, []onnx.Tensor{y, floats(t, r, tensor.Shape{2, 2}, 0, 0, 0, 0)}, "shape"},
	} {
		t.Run(name, func(t *testing.T) {
			err := r.Run(c.in, c.out)
			require.ErrorContains(t, err, c.want)
			if name != "batches differ" && name != "output too large" { // these come from a kernel
				require.Equal(t, status.InvalidArg, status.CodeOf(err), "%v", err)
			}
			require.NoError(t, r.Run([]onnx.Tensor{x, old}, []onnx.Tensor{y, fresh}))
			require.Equal(t, []float32{11, 22}, elements[float32](t, fresh))
			require.Equal(t, []float32{10, 20}, elements[float32](t, old))
		})
	}
}

// TestClosed closes twice and runs after it.
func TestClosed(t *testing.T) {
	r := open(t, accumulate(2))
	_, err := r.Memory().Alloc(1000)
	require.NoError(t, err)
	r.Close()
	r.Close()
	require.Empty(t, r.memory.held)
	require.ErrorContains(t, r.Run(nil, nil), "closed")
}
