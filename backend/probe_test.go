package backend

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// shapeRunner runs no model: it tells the output shapes of given input shapes.
type shapeRunner struct {
	statebuffer.Heap
	signature Signature
	shapes    func(inputs []Tensor) ([]tensor.Shape, error)
}

func (r *shapeRunner) Signature() *Signature      { return &r.signature }
func (r *shapeRunner) Memory() statebuffer.Memory { return &r.Heap }
func (r *shapeRunner) Close()                     {}
func (r *shapeRunner) Run(inputs, outputs []Tensor) error {
	shapes, err := r.shapes(inputs)
	for i := range shapes {
		outputs[i].Shape = shapes[i]
	}
	return err
}

func unnamed(name string, dims ...int64) TensorInfo {
	return TensorInfo{Name: name, DType: tensor.FP32, Dims: dims, Symbols: make([]string, len(dims))}
}

// concat joins [time, batch, 4] behind a cache [length, batch, 4].
func concat(inputs []Tensor) ([]tensor.Shape, error) {
	x, past := inputs[0].Shape, inputs[1].Shape
	if x[1] != past[1] {
		return nil, errors.New("batches differ")
	}
	return []tensor.Shape{{x[0] + past[0], x[1], 4}, {x[1], 7}}, nil
}

func TestProbeFindsTheAxisThatFollowsTheLanes(t *testing.T) {
	r := &shapeRunner{shapes: concat, signature: Signature{
		Inputs:  []TensorInfo{unnamed("x", -1, -1, 4), unnamed("past", -1, -1, 4)},
		Outputs: []TensorInfo{unnamed("present", -1, -1, 4), unnamed("y", -1, 7)},
	}}
	sig := nameBatch(r)
	require.Equal(t, []string{"", probedBatch, ""}, sig.Inputs[0].Symbols)
	require.Equal(t, []string{"", probedBatch, ""}, sig.Inputs[1].Symbols)
	require.Equal(t, []string{"", probedBatch, ""}, sig.Outputs[0].Symbols)
	require.Equal(t, []string{probedBatch, ""}, sig.Outputs[1].Symbols)
	require.Equal(t, []string{"", "", ""}, r.signature.Inputs[0].Symbols, "the runner's signature must stay as it is")
	require.Zero(t, r.Used(), "probe runs must free what they take")
}

func TestProbeGuessesNothing(t *testing.T) {
	anything := func(inputs []Tensor) ([]tensor.Shape, error) { return []tensor.Shape{inputs[0].Shape}, nil }
	nothing := func([]Tensor) ([]tensor.Shape, error) { return nil, errors.New("refused") }
	for name, shapes := range map[string]func([]Tensor) ([]tensor.Shape, error){"any axis works": anything, "none works": nothing} {
		t.Run(name, func(t *testing.T) {
			r := &shapeRunner{shapes: shapes, signature: Signature{
				Inputs: []TensorInfo{unnamed("x", -1, -1)}, Outputs: []TensorInfo{unnamed("y", -1, -1)},
			}}
			require.Same(t, &r.signature, nameBatch(r))
			require.Zero(t, r.Used())
		})
	}
}

// A decoder that was exported for a batch of 1: its cache grows along an axis that
// has a name, on more inputs than any other.
func TestProbeSeesThatALengthIsNoBatch(t *testing.T) {
	info := func(name string, dims tensor.Shape, symbols ...string) TensorInfo {
		return TensorInfo{Name: name, DType: tensor.FP32, Dims: dims, Symbols: symbols}
	}
	r := &shapeRunner{signature: Signature{
		Inputs: []TensorInfo{
			info("ids", tensor.Shape{1, -1}, "", "sequence"),
			info("past_0", tensor.Shape{1, -1, 4}, "", "past", ""), info("past_1", tensor.Shape{1, -1, 4}, "", "past", ""),
		},
		Outputs: []TensorInfo{
			info("logits", tensor.Shape{1, -1, 9}, "", "sequence", ""),
			info("present_0", tensor.Shape{1, -1, 4}, "", "total", ""), info("present_1", tensor.Shape{1, -1, 4}, "", "total", ""),
		},
	}, shapes: func(inputs []Tensor) ([]tensor.Shape, error) {
		n, past := inputs[0].Shape[1], inputs[1].Shape[1]
		return []tensor.Shape{{1, n, 9}, {1, past + n, 4}, {1, past + n, 4}}, nil
	}}
	require.Empty(t, batchSymbol(&r.signature))
	sig := nameBatch(r)
	require.Same(t, &r.signature, sig)
	w := &wirer{sig: sig, params: &Parameters{}}
	axis, _, err := w.tensorAxis(&sig.Inputs[1])
	require.NoError(t, err)
	require.Equal(t, noAxis, axis)
}

func TestProbeIsNotNeededWhereNamesOrSingleAxesTell(t *testing.T) {
	never := func([]Tensor) ([]tensor.Shape, error) { panic("the model was run") }
	named := unnamed("x", -1, -1)
	named.Symbols = []string{"batch", ""}
	for name, info := range map[string]TensorInfo{"named": named, "one dynamic axis": unnamed("x", -1, 3)} {
		t.Run(name, func(t *testing.T) {
			r := &shapeRunner{shapes: never, signature: Signature{Inputs: []TensorInfo{info}, Outputs: []TensorInfo{info}}}
			require.Same(t, &r.signature, nameBatch(r))
		})
	}
}
