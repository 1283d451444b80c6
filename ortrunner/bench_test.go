package ortrunner

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	ort "github.com/yalue/onnxruntime_go"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/ortrunner/onnxtest"
)

// states is a model of that many states [batch, 16], each new = old + old.
func states(count int) onnxtest.Model {
	var m onnxtest.Model
	for i := range count {
		old, fresh := fmt.Sprintf("old%03d", i), fmt.Sprintf("new%03d", i)
		m.Inputs = append(m.Inputs, wide(old, 16))
		m.Nodes = append(m.Nodes, onnxtest.Node{Op: "Add", Inputs: []string{old, old}, Outputs: []string{fresh}})
		m.Outputs = append(m.Outputs, wide(fresh, 16))
	}
	return m
}

// places is how many sets of addresses a benchmark goes round: 1 is a batch that
// stays where it is, 2 are states that change places with every step, and more
// than maxValues are rows that are never seen again in time.
var places = []int{1, 2, maxValues + 1}

// BenchmarkRun runs models of 2 and of 200 tensors at batch 1, without the work
// of a kernel.
func BenchmarkRun(b *testing.B) {
	for _, count := range []int{1, 100} {
		for _, n := range places {
			b.Run(fmt.Sprintf("tensors=%d/places=%d", 2*count, n), func(b *testing.B) {
				r := open(b, states(count))
				sets := tensorSets(b, r, 2*n)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if err := r.Run(sets[2*i%len(sets)], sets[(2*i+1)%len(sets)]); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkBinding is the same through the wrapper's IoBinding: bound once where
// nothing moves, else bound again, value by value, with values made before. It is
// why runner does without.
func BenchmarkBinding(b *testing.B) {
	for _, count := range []int{1, 100} {
		for _, n := range places[:2] {
			b.Run(fmt.Sprintf("tensors=%d/places=%d", 2*count, n), func(b *testing.B) {
				model := states(count)
				r := open(b, model)
				session := wrapperSession(b, model)
				sets := make([][]ort.Value, 0, 2*n)
				for _, set := range tensorSets(b, r, 2*n) {
					sets = append(sets, wrapperValues(b, set))
				}
				binding, err := session.CreateIoBinding()
				require.NoError(b, err)
				defer binding.Destroy() //nolint:errcheck // never fails
				bind(b, r, binding, sets[0], sets[1])
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if n > 1 {
						bind(b, r, binding, sets[2*i%len(sets)], sets[(2*i+1)%len(sets)])
					}
					if err := session.RunWithBinding(binding); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// tensorSets is n sets of tensors for all inputs or outputs of a model of states.
func tensorSets(b *testing.B, r *runner, n int) [][]onnx.Tensor {
	b.Helper()
	sets := make([][]onnx.Tensor, n)
	for i := range sets {
		for range r.inputs {
			sets[i] = append(sets[i], zeros(b, r, tensor.FP32, tensor.Shape{1, 16}))
		}
	}
	return sets
}

// wrapperSession is the model as the wrapper loads it.
func wrapperSession(b *testing.B, model onnxtest.Model) *ort.DynamicAdvancedSession {
	b.Helper()
	options, err := newOptions(onnx.SessionOptions{IntraOpThreads: 1}, nil)
	require.NoError(b, err)
	session, err := ort.NewDynamicAdvancedSession(model.Write(b), nil, nil, options)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, session.Destroy()) })
	require.NoError(b, options.Destroy())
	return session
}

// wrapperValues is tensors as the wrapper takes them.
func wrapperValues(b *testing.B, set []onnx.Tensor) []ort.Value {
	b.Helper()
	values := make([]ort.Value, 0, len(set))
	for _, t := range set {
		v, err := ort.NewCustomDataTensor(ort.Shape(t.Shape), t.Data.Bytes, ort.TensorElementDataTypeFloat)
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, v.Destroy()) })
		values = append(values, v)
	}
	return values
}

func bind(b *testing.B, r *runner, binding *ort.IoBinding, in, out []ort.Value) {
	for i := range in {
		if err := binding.BindInput(r.inputs[i].info.Name, in[i]); err != nil {
			b.Fatal(err)
		}
		if err := binding.BindOutput(r.outputs[i].info.Name, out[i]); err != nil {
			b.Fatal(err)
		}
	}
}
