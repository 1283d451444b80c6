package backend

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// TestInputsOnDevice: some requests of a batch bring their input in the memory of
// a GPU, others in the host's.
func TestInputsOnDevice(t *testing.T) {
	for _, padding := range []string{"none", "max"} {
		t.Run(padding, func(t *testing.T) { inputsOnDevice(t, padding) })
	}
	p := plan.IO{IOTensor: onnx.IOTensor{Name: "x", DType: tensor.FP32}, Axis: tensor.NoAxis}
	err := checkInput(&p, &Input{Present: true, DType: tensor.FP32, Device: 1, Size: 4}, 1)
	require.ErrorContains(t, err, `input "x" is in GPU memory`)
}

func inputsOnDevice(t *testing.T, padding string) {
	m := &testMemory{}
	s, g := gpuServer(t, withMemory(m), param("batch_padding", padding))
	next := uint64(0x7f0000000000)
	onDevice := func(r *Request) {
		input := &r.Inputs[0]
		g.there[next] = append(byteRange(nil), input.Data...)
		input.Device, input.Size, input.Data = next, int64(len(input.Data)), nil
		next += 1 << 16
	}
	s.batch(startOf(1).with(onDevice), startOf(2), startOf(3).with(onDevice)).ok()
	s.batch(nextOf(1), nextOf(3).with(onDevice)).ok()
	s.batch(nextOf(1), nextOf(2), nextOf(3)).ok()
	s.batch(nextOf(1).with(func(r *Request) {
		onDevice(r)
		r.Inputs[0].Size--
	})).want(`input "Input" has 79 bytes: want 80`)
	s.batch(nextOf(1).with(onDevice)).ok()

	// What was to be placed for a run that never came is forgotten.
	failing(m, "gather", func() error { return errors.New("injected") })
	s.batch(startOf(5).with(onDevice)).want("gathering the states: injected")
	s.batch(startOf(6)).ok()
}

// TestOutputsOnDevice: some clients want their answers in the memory of a GPU. The
// run puts them there; nothing is waited for a second time.
func TestOutputsOnDevice(t *testing.T) {
	plain := accumulate()
	outermost := accumulate()
	outermost.order = "brk"
	for name, stream := range map[string]stream{"batch in the middle": plain, "batch outermost": outermost} {
		t.Run(name, func(t *testing.T) {
			s, g := gpuServer(t, streamsOf(stream), param("infer_end_requests", "0"))
			s.batch(startOf(1).toDevice(), startOf(2), startOf(3).toDevice()).ok()
			s.batch(nextOf(2), nextOf(3).toDevice()).ok()
			s.batch(nextOf(1), nextOf(2).toDevice(), nextOf(3)).ok()
			require.Zero(t, g.writes)
			for _, places := range s.last.reserved {
				require.Len(t, places, 1)
			}
			s.runner.before = func() error { return errors.New("injected") }
			s.batch(nextOf(1).toDevice()).want("error during inference: injected")
			s.runner.before = nil
			s.batch(nextOf(1), nextOf(2)).ok()
			require.Empty(t, g.after)
			// Nothing runs for this END: its answer is put there by itself.
			s.batch(endOf(1).toDevice(), endOf(2)).ok()
			require.Equal(t, 1, g.writes)
			g.broken = errors.New("injected")
			s.batch(endOf(2).toDevice(), nextOf(3)).want(`output "Output": injected`, "")
		})
	}
}

// TestStateOutputOnDevice: a client may see new states; those are left on the device
// unless it is said before the run that the host wants them.
func TestStateOutputOnDevice(t *testing.T) {
	visible := func(s *setup) {
		s.config.Outputs = append(s.config.Outputs, config.TensorConfig{Name: "Accumulate_Out", DataType: "TYPE_FP32", Dims: tensor.Shape{5}})
	}
	s, g := gpuServer(t, visible)
	host, _ := gpuServer(t, visible)
	host.in.runner, host.in.device = host.runner, nil
	for _, asks := range [][]ask{{startOf(1), startOf(2)}, {nextOf(2), nextOf(1)}, {nextOf(1)}} {
		for _, device := range []bool{false, true} {
			for i := range asks {
				asks[i].device = device
			}
			want := host.batch(slices.Clone(asks)...).ok()
			got := s.batch(slices.Clone(asks)...).ok()
			for i := range asks {
				require.Equal(t, want.answers[i].outputs[1], got.answers[i].outputs[1])
				require.Len(t, got.answers[i].outputs[1], 20)
			}
		}
	}
	require.Zero(t, g.writes)
	g.broken = errors.New("injected")
	s.batch(nextOf(1), startOf(3)).want(`output "Accumulate_Out": injected`, `output "Accumulate_Out": injected`)
	g.broken = nil
	s.batch(nextOf(1), nextOf(3)).want("", "its START failed")
}

// TestVaryingOutputOnDevice: its size is not known before the run.
func TestVaryingOutputOnDevice(t *testing.T) {
	model := cacheModel()
	in := model.loaded(t, cacheConfig())
	g := &gpu{Runner: model, t: t}
	in.runner, in.device = g, g
	for step, want := range [][][]int32{{{7}, {8, 9}}, {{7, 10}, {8, 9, 11}}} {
		b := &fakeBatch{t: t, answers: make([]answer, 2), onDevice: map[int]bool{1: true}}
		g.batch = b
		for i, sent := range [][]int32{{7, 10}, {8, 9, 11}} {
			values := sent[len(sent)-1:]
			if step == 0 {
				values = sent[:len(sent)-1]
			}
			b.requests = append(b.requests, Request{Sequence: SequenceID{Number: uint64(i + 1)}, Start: step == 0, Inputs: intInput(tensor.Shape{1, int64(len(values))}, values...)})
		}
		in.Execute(b)
		for i := range want {
			require.NoError(t, b.answers[i].err)
			require.Equal(t, want[i], numbers(b.answers[i].outputs[0]))
		}
		require.Equal(t, 2*(step+1), g.waits, "the two are of different lengths: two runs, and one wait for each")
		require.Zero(t, g.writes, "the run itself puts the answer there")
	}
	for _, late := range []error{errors.New("injected"), nil} {
		b := &fakeBatch{t: t, answers: make([]answer, 1), onDevice: map[int]bool{0: true}}
		b.requests = []Request{{Sequence: SequenceID{Number: 1}, Inputs: intInput(tensor.Shape{1, 1}, 5)}}
		g.batch, g.late = b, late
		in.Execute(b)
		if late != nil {
			require.ErrorContains(t, b.answers[0].err, "error during inference: injected")
			continue
		}
		require.NoError(t, b.answers[0].err)
		require.Equal(t, []int32{7, 10, 5}, numbers(b.answers[0].outputs[0]), "the failed run has changed nothing")
	}
}
