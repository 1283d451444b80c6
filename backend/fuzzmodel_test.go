package backend

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// choices makes decisions out of a fuzzer's bytes; when they are used up, it
// always takes the first.
type choices struct{ data []byte }

func (c *choices) below(n int) int {
	if len(c.data) == 0 || n < 1 {
		return 0
	}
	b := int(c.data[0])
	c.data = c.data[1:]
	return b % n
}

func (c *choices) yes() bool { return c.below(2) == 1 }

func choose[T any](c *choices, from ...T) T { return from[c.below(len(from))] }

// dims are a few extents, most of them sensible.
func (c *choices) dims() tensor.Shape {
	shape := make(tensor.Shape, c.below(5))
	for i := range shape {
		shape[i] = choose[int64](c, -1, 1, 2, -1, 3, 0, 1<<31, 1<<62, 1<<63-1, -2)
	}
	return shape
}

var (
	fuzzNames  = []string{"x", "s", "new_s", "s_out", "START", "y", "h_in", "h_out", "c", "next_c"}
	fuzzDTypes = []tensor.DType{tensor.FP32, tensor.FP32, tensor.Int64, tensor.FP16, tensor.Bool, tensor.Bytes, tensor.Int32, tensor.Uint8, tensor.BF16}
)

func (c *choices) infos() (infos []onnx.TensorInfo) {
	for range c.below(5) {
		t := onnx.TensorInfo{Name: choose(c, fuzzNames...), DType: choose(c, fuzzDTypes...), Dims: c.dims(), Optional: c.below(8) == 1}
		if slices.ContainsFunc(infos, func(other onnx.TensorInfo) bool { return other.Name == t.Name }) {
			continue // a model has no two tensors of one name
		}
		for i, d := range t.Dims {
			if d < 0 {
				t.Dims[i] = tensor.Dynamic
			}
			symbol := ""
			if d < 0 {
				symbol = choose(c, "", "batch", "T", "batch")
			}
			t.Symbols = append(t.Symbols, symbol)
		}
		infos = append(infos, t)
	}
	return infos
}

// tensors are descriptions of tensors that mostly fit the model's.
func (c *choices) tensors(infos []onnx.TensorInfo) (configs []config.TensorConfig) {
	for i := range infos {
		t := config.TensorConfig{Name: infos[i].Name, DataType: infos[i].DType.ConfigName(), Dims: infos[i].Dims, Optional: c.below(8) == 1}
		switch c.below(8) {
		case 1, 2, 3: // not described
			continue
		case 4:
			t.Dims = c.dims()
		case 5:
			t.DataType = choose(c, fuzzDTypes...).ConfigName()
		case 6:
			t.Dims = slices.Clone(t.Dims[min(1, len(t.Dims)):])
		}
		configs = append(configs, t)
	}
	return configs
}

func (c *choices) config(sig *onnx.Signature) *config.Config {
	cfg := &config.Config{
		Name: "fuzz", MaxBatchSize: choose(c, 4, 1, 0, 3), Parameters: map[string]config.Value{},
		Inputs: c.tensors(sig.Inputs), Outputs: c.tensors(sig.Outputs),
	}
	if c.below(4) > 0 {
		cfg.Sequence = &config.SequenceConfig{MaxIdleMicroseconds: choose[uint64](c, 1_000_000, 0, 1<<64-1)}
		if c.yes() {
			cfg.Sequence.Oldest = &config.OldestConfig{MaxCandidateSequences: choose(c, 8, 0, 1, 1<<16, -1), PreferredBatchSizes: []int{choose(c, 2, -1, 99)}}
		}
		for range c.below(3) {
			control := config.Control{Kind: choose(c, config.ControlStart, config.ControlEnd, config.ControlReady, config.ControlCorrID, "OTHER"), Int32FalseTrue: []int32{0, 1}[:c.below(3)], DataType: choose(c, "TYPE_UINT64", "TYPE_STRING", "")}
			cfg.Sequence.ControlInputs = append(cfg.Sequence.ControlInputs, config.ControlConfig{Name: choose(c, fuzzNames...), Controls: []config.Control{control}})
		}
		for range c.below(3) {
			state := config.StateConfig{InputName: choose(c, fuzzNames...), OutputName: choose(c, fuzzNames...), DataType: choose(c, fuzzDTypes...).ConfigName(), Dims: c.dims()}
			cfg.Sequence.States = append(cfg.Sequence.States, state)
		}
	}
	for _, p := range [][]string{
		{"state_pairs", "", "<<<s, new_s>>>", "<<<s, s_out>>> <<<h_in, h_out>>>", "<<<*, new_*>>>"},
		{"batch_axes", "", "s = 0", "x = 1", "* = none", "s = 3"},
		{"initial_states", "", "s = 1.5", "s = 2[1,2]", "h_in = file:a.npy", "* = 1[2147483648]"},
		{"constant_inputs", "", "c = 1", "x = true"},
		{"derived_inputs", "", "c = steps", "c = length_before(x)", "c = length_after(x:1)", "c = 16 + length_before(y)", "c = length_before(new_s:1) - 3", "x = steps - 1"},
		{"batch_padding", "", "max", "preferred"}, {"store_states_as_fp16", "", "1"}, {"infer_end_requests", "", "0"},
		{"when_full", "", "evict_lru"}, {"max_state_memory_bytes", "", "1", "1000", "9223372036854775807"}, {"max_state_bytes", "", "0", "8"},
		{"initial_buffer_size", "", "4"}, {"max_candidate_sequence_use_ratio", "", "1e30", "0.0001"},
		{"state_updates", "", "* = keep", "s = append(1)", "* = append(0)", "s = append(2)", "h_in = append(1); s = keep"},
	} {
		if value := choose(c, p[1:]...); value != "" {
			cfg.Parameters[p[0]] = config.Value{String: value}
		}
	}
	return cfg
}

// anyModel is a Runner of any signature, which checks what it is given as ONNX
// Runtime does, and writes any shapes where the signature leaves them open.
type anyModel struct {
	sig    onnx.Signature
	memory statebuffer.Memory
	choices
}

func (m *anyModel) Signature() *onnx.Signature { return &m.sig }
func (m *anyModel) Memory() statebuffer.Memory { return m.memory }
func (m *anyModel) Close()                     {}

func (m *anyModel) Run(inputs, outputs []onnx.Tensor) error {
	lanes := int64(1)
	for i := range inputs {
		info := &m.sig.Inputs[i]
		if inputs[i].DType == tensor.Invalid && info.Optional {
			continue
		}
		if err := m.accepts(info, &inputs[i]); err != nil {
			return fmt.Errorf("input %q: %w", info.Name, err)
		}
		if axis := slices.Index(info.Symbols, "batch"); axis >= 0 {
			lanes = inputs[i].Shape[axis]
		}
	}
	for i := range outputs {
		if info := &m.sig.Outputs[i]; outputs[i].Data.Size > 0 {
			if err := m.accepts(info, &outputs[i]); err != nil {
				return fmt.Errorf("output %q: %w", info.Name, err)
			}
		} else if err := m.allocate(info, &outputs[i], lanes); err != nil {
			return err
		}
	}
	return nil
}

func (m *anyModel) accepts(info *onnx.TensorInfo, t *onnx.Tensor) error {
	if t.DType != info.DType || len(t.Shape) != len(info.Dims) {
		return fmt.Errorf("%v %v: the model has %v %v", t.DType, t.Shape, info.DType, info.Dims)
	}
	for i, d := range info.Dims {
		if t.Shape[i] < 0 || d >= 0 && t.Shape[i] != d {
			return fmt.Errorf("shape %v: the model has %v", t.Shape, info.Dims)
		}
	}
	if t.DType == tensor.Bytes {
		return nil
	}
	bytes, err := t.Shape.Bytes(t.DType)
	if err == nil && (bytes != t.Data.Size || bytes != int64(len(t.Data.Bytes))) {
		panic(fmt.Sprintf("the backend gives %q %v of %v in %d bytes", info.Name, t.Shape, t.DType, t.Data.Size))
	}
	return err
}

func (m *anyModel) allocate(info *onnx.TensorInfo, t *onnx.Tensor, lanes int64) error {
	t.DType, t.Shape = info.DType, info.Dims.Clone()
	for i, d := range t.Shape {
		if d < 0 {
			t.Shape[i] = choose[int64](&m.choices, lanes, lanes, 1, 0, 2)
		}
	}
	size, err := emptyBytes(t.Shape, info.DType)
	if err != nil || size > 1<<20 {
		return errors.New("an output is too large")
	}
	t.Data = statebuffer.Block{Bytes: make([]byte, size), Size: size}
	return nil
}

// emptyBytes is the size of a tensor of zeros; a text is its length, of four bytes.
func emptyBytes(shape tensor.Shape, dtype tensor.DType) (int64, error) {
	if dtype == tensor.Bytes {
		dtype = tensor.Uint32
	}
	return shape.Bytes(dtype)
}

// FuzzModel loads random configurations with random models and sends them random
// requests: nothing may panic, and what loads must answer every request once. The
// memory has an end, so that impossible sizes are refused as they would be.
func FuzzModel(f *testing.F) {
	f.Add([]byte(nil))
	for seed := range byte(40) {
		data := make([]byte, 200)
		for i := range data {
			data[i] = byte(i)*(2*seed+1) ^ seed*37
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &choices{data}
		memory := &statebuffer.Heap{Limit: 1 << 22}
		model := &anyModel{memory: memory}
		model.sig.Inputs, model.sig.Outputs = c.infos(), c.infos()
		text, err := json.Marshal(c.config(&model.sig))
		require.NoError(t, err)
		log, now := newRecorder(slog.LevelInfo), time.Hour
		m, err := NewModel(ModelInfo{Name: "fuzz", Directory: "/none", Config: text}, Server{
			Log: slog.New(log), Clock: func() time.Duration { now += time.Microsecond; return now },
			Open: func(onnx.SessionOptions) (onnx.Runner, error) { return model, nil },
		})
		if err != nil {
			return
		}
		in, err := m.NewInstance(InstanceInfo{Name: "fuzz_0", Kind: "cpu"})
		if err != nil {
			require.Zero(t, memory.Used(), "a failed load holds memory")
			return
		}
		model.choices = choices{c.data}
		for range 4 {
			in.Execute(c.batch(t, in))
		}
		require.Empty(t, log.having("panic while a batch ran"))
		in.Close()
		require.Zero(t, memory.Used(), "bytes after Close")
	})
}

// batch is requests that mostly fit what the instance takes.
func (c *choices) batch(t *testing.T, in *Instance) *fakeBatch {
	b := &fakeBatch{t: t, ports: in.Outputs()}
	for range 1 + c.below(4) {
		r := Request{Start: c.yes(), End: c.below(4) == 1, Cancelled: c.below(8) == 1}
		if in.StringIDs() {
			r.Sequence.Text = choose(c, "", "a", "b", "c")
		} else {
			r.Sequence.Number = uint64(c.below(5))
		}
		for i := range in.Inputs() {
			r.Inputs = append(r.Inputs, c.input(&in.plan.Inputs[i]))
		}
		b.requests = append(b.requests, r)
	}
	b.answers = make([]answer, len(b.requests))
	return b
}

func (c *choices) input(p *plan.IO) Input {
	input := Input{Present: c.below(8) != 1, DType: p.DType, Shape: p.Request.Clone()}
	for i, d := range input.Shape {
		if d < 0 {
			input.Shape[i] = choose[int64](c, 1, 2, 3, 0)
		}
	}
	switch c.below(8) {
	case 1:
		input.Shape = c.dims()
	case 2:
		input.DType = choose(c, fuzzDTypes...)
	}
	bytes, err := emptyBytes(input.Shape, input.DType)
	if err != nil || bytes < 0 || bytes > 1<<16 {
		bytes = int64(c.below(64))
	}
	input.Data = make([]byte, bytes+int64(choose(c, 0, 0, 0, 0, 1, 4)))
	return input
}
