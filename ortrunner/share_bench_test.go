package ortrunner

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/ortrunner/onnxtest"
)

// layers is x [batch, width] through that many square matrices, with Tanh between.
func layers(width, count int) onnxtest.Model {
	m := onnxtest.Model{Inputs: []onnxtest.Value{wide("x0", width)}}
	for i := range count {
		weights := make([]float32, width*width) // other ones for each: ONNX Runtime keeps equal ones once
		for k := range weights {
			weights[k] = float32((k+i)%17-8) / float32(4*width)
		}
		matrix, product, next := fmt.Sprintf("w%d", i), fmt.Sprintf("p%d", i), fmt.Sprintf("x%d", i+1)
		m.Initializers = append(m.Initializers, onnxtest.Tensor{Name: matrix, Type: onnxtest.Float, Dims: []int64{int64(width), int64(width)}, Data: weights})
		m.Nodes = append(m.Nodes,
			onnxtest.Node{Op: "MatMul", Inputs: []string{fmt.Sprintf("x%d", i), matrix}, Outputs: []string{product}},
			onnxtest.Node{Op: "Tanh", Inputs: []string{product}, Outputs: []string{next}})
	}
	m.Outputs = []onnxtest.Value{wide(fmt.Sprintf("x%d", count), width)}
	return m
}

// instances opens runners of a model, over one session or one each.
func instances(b *testing.B, path string, count, threads int, shared bool) []*runner {
	b.Helper()
	all := make([]*runner, 0, count)
	for len(all) < count {
		var opened onnx.Runner
		var err error
		if shared && len(all) > 0 {
			opened, err = all[0].Share()
		} else {
			opened, err = testRuntime(b).Open(onnx.SessionOptions{Path: path, IntraOpThreads: threads})
		}
		require.NoError(b, err)
		b.Cleanup(opened.Close)
		all = append(all, opened.(*runner))
	}
	return all
}

// BenchmarkInstances runs several instances of a model at once, which share a session or
// have one each. ns/op is the time between two runs of any instance,
// cpu-ns/op the processor time of a run, which other programs disturb less.
func BenchmarkInstances(b *testing.B) {
	models := []struct {
		name  string
		model onnxtest.Model
		shape tensor.Shape
	}{
		{"tiny", states(1), tensor.Shape{1, 16}},
		{"nodes", states(100), tensor.Shape{1, 16}},
		{"small", layers(64, 8), tensor.Shape{8, 64}},
		{"medium", layers(256, 8), tensor.Shape{8, 256}},
	}
	for _, m := range models {
		path := m.model.Write(b)
		for _, threads := range []int{1, 2} {
			for _, count := range []int{1, 2, 8} {
				for _, shared := range []bool{false, true} {
					if count > 1 || !shared {
						b.Run(fmt.Sprintf("%s/threads=%d/instances=%d/shared=%v", m.name, threads, count, shared), func(b *testing.B) {
							runAtOnce(b, instances(b, path, count, threads, shared), m.shape)
						})
					}
				}
			}
		}
	}
}

// runAtOnce has all runners run, each its share.
func runAtOnce(b *testing.B, all []*runner, shape tensor.Shape) {
	inputs, outputs := make([][]onnx.Tensor, len(all)), make([][]onnx.Tensor, len(all))
	for i, r := range all {
		for range r.inputs {
			inputs[i] = append(inputs[i], zeros(b, r, tensor.FP32, shape))
		}
		for range r.outputs {
			outputs[i] = append(outputs[i], zeros(b, r, tensor.FP32, shape))
		}
	}
	var group sync.WaitGroup
	b.ResetTimer()
	before := cpuTime()
	for i, r := range all {
		group.Go(func() {
			for n := i; n < b.N; n += len(all) {
				if err := r.Run(inputs[i], outputs[i]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
}

// cpuTime is what this process has used, in nanoseconds.
func cpuTime() int64 {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return used.Utime.Nano() + used.Stime.Nano()
}
