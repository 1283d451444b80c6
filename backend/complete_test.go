package backend

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnx/runnertest"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

// outermost runs a model whose batch is the outermost axis of each tensor: every lane of
// an output holds the sum of the bytes that the lane has of the first input.
func outermost(sig *onnx.Signature, inputs, outputs []onnx.Tensor) error {
	lanes := inputs[0].Shape[0]
	for i := range inputs {
		if inputs[i].Shape[0] != lanes {
			return errors.New("batches differ")
		}
	}
	for i := range outputs {
		out := &outputs[i]
		runnertest.Allocate(out, sig.Outputs[i].Dims.With(0, lanes)...)
		for lane := range lanes {
			sum := 0.0
			each := int64(len(inputs[0].Data.Bytes)) / lanes
			for _, b := range inputs[0].Data.Bytes[lane*each:][:each] {
				sum += float64(b)
			}
			runnertest.SetElement(out.Data.Bytes, tensor.FP32, lane*out.Data.Size/4/lanes, sum)
		}
	}
	return nil
}

// completing calls Complete for a model with these tensors. The model file must be
// closed again.
func completing(t testing.TB, cfg, inputs, outputs string) (text []byte, opened *onnx.SessionOptions, log *recorder, err error) {
	file := runnertest.NewFile(t, inputs, outputs)
	if strings.Contains(inputs, "STRING") {
		file.Runs = outermost
	}
	log = newRecorder(slog.LevelInfo)
	server := Server{Log: slog.New(log), DefaultBatch: config.ServerBatch, Open: func(o onnx.SessionOptions) (onnx.Runner, error) {
		opened = &o
		return file, nil
	}}
	text, err = Complete(ModelInfo{Name: "m", Version: 3, Directory: "/models/m", Config: []byte(cfg)}, server)
	require.Equal(t, opened != nil, file.Closed)
	if err == nil && text != nil {
		plans(t, text, &file.Sig)
	}
	return text, opened, log, err
}

// TestCompleteLeavesFaultsToTheLoad: a fault of a parameter does not keep the others from
// being reported, and is reported with those of the completion itself.
func TestCompleteLeavesFaultsToTheLoad(t *testing.T) {
	faulty := func(pairs string) string {
		return `{"sequence_batching":{},"parameters":{"intra_op_threads":{"string_value":"many"},"initial_states":{"string_value":"g = 1"},"state_pairs":{"string_value":"` + pairs + `"}}}`
	}
	file := runnertest.NewFile(t, lstmInputs, lstmOutputs)
	open := func(onnx.SessionOptions) (onnx.Runner, error) { return file, nil }
	text, err := Complete(ModelInfo{Name: "m", Config: []byte(faulty("<<<h, h_out>>> <<<c, c_new>>>"))}, Server{Log: slog.New(slog.DiscardHandler), Open: open})
	require.NoError(t, err)
	m, _ := newModel(t, "", text, open)
	_, err = m.NewInstance(InstanceInfo{Name: "m_0", Kind: "cpu"})
	for _, want := range []string{"parameter intra_op_threads", `"c_new" is not an output`, `no state named "g"`} {
		require.ErrorContains(t, err, want)
	}

	_, err = Complete(ModelInfo{Name: "m", Config: []byte(faulty("<<<h, h_out>>> <<<c, c_out>>> <<<x, y>>>"))}, Server{Log: slog.New(slog.DiscardHandler), Open: open})
	require.ErrorContains(t, err, "parameter intra_op_threads")
	require.ErrorContains(t, err, "leaves no input for requests")
	require.Equal(t, status.InvalidArg, status.CodeOf(err))
}

// plans checks that a model loads with its completed configuration.
func plans(t testing.TB, text []byte, sig *onnx.Signature) {
	t.Helper()
	cfg, err := config.Parse(text)
	require.NoError(t, err)
	params, _, err := config.ParseParameters(cfg.Parameters)
	require.NoError(t, err)
	_, err = planByEvidence(cfg, params, sig)
	require.NoError(t, err, string(text))
}

const (
	lstmInputs  = "x:FP32[B,T,80] h:FP32[2,B,16] c:FP32[2,B,16]"
	lstmOutputs = "y:FP32[B,T,4] h_out:FP32[2,B,16] c_out:FP32[2,B,16]"
)

// TestComplete: what is filled in, and what is left as it was.
func TestComplete(t *testing.T) {
	const x, y = `{"name":"x","data_type":"TYPE_FP32","dims":[-1,80]}`, `{"name":"y","data_type":"TYPE_FP32","dims":[-1,4]}`
	tests := []struct {
		name, config, inputs, outputs string
		want                          string // "..." stands for the given configuration
	}{
		{"three lines", `{"backend":"stateful","sequence_batching":{"oldest":{"max_candidate_sequences":100}}}`, lstmInputs, lstmOutputs,
			`{...,"max_batch_size":64,"input":[` + x + `],"output":[` + y + `]}`},
		{"nothing at all", ``, lstmInputs, lstmOutputs,
			`{"max_batch_size":64,"input":[` + x + `],"output":[` + y + `],"sequence_batching":{"oldest":{"max_candidate_sequences":256},"state":[
			{"input_name":"h","output_name":"h_out","data_type":"TYPE_FP32","dims":[2,16]},{"input_name":"c","output_name":"c_out","data_type":"TYPE_FP32","dims":[2,16]}]}}`},
		{"a given max_batch_size", `{"max_batch_size":7,"sequence_batching":{}}`, lstmInputs, lstmOutputs, `{...,"input":[` + x + `],"output":[` + y + `]}`},
		{"given inputs", `{"max_batch_size":7,"sequence_batching":{},"input":[` + x + `]}`, lstmInputs, lstmOutputs, `{...,"output":[` + y + `]}`},
		{"given outputs keep max_batch_size 0", `{"sequence_batching":{},"output":[{"name":"y","data_type":"TYPE_FP32","dims":[1,-1,4]}]}`, lstmInputs, lstmOutputs,
			`{...,"input":[{"name":"x","data_type":"TYPE_FP32","dims":[-1,-1,80]}]}`},
		{"few slots", `{"sequence_batching":{"oldest":{"max_candidate_sequences":32}}}`, lstmInputs, lstmOutputs, `{...,"max_batch_size":32,"input":[` + x + `],"output":[` + y + `]}`},
		{"oldest without a number", `{"sequence_batching":{"oldest":{}}}`, lstmInputs, lstmOutputs, `{...,"max_batch_size":64,"input":[` + x + `],"output":[` + y + `]}`},
		{"one axis: the batch", `{"sequence_batching":{}}`, "n:INT64[B] s:FP32[B,1]", "m:INT64[B] s_out:FP32[B,1]",
			`{...,"max_batch_size":64,"input":[{"name":"n","data_type":"TYPE_INT64","dims":[1],"reshape":{"shape":[]}}],"output":[{"name":"m","data_type":"TYPE_INT64","dims":[1],"reshape":{"shape":[]}}]}`},
		{"controls, constants, derived inputs", `{"sequence_batching":{"control_input":[{"name":"START","control":[{"kind":"CONTROL_SEQUENCE_START","fp32_false_true":[0,1]}]}]},
			"parameters":{"constant_inputs":{"string_value":"sr = 16000"},"derived_inputs":{"string_value":"pos = steps"}}}`,
			"x:FP32[B,80] START:FP32[B,1] sr:INT64[] pos:INT64[B] s:FP32[B,1]", "y:FP32[B,4] s_out:FP32[B,1]",
			`{...,"max_batch_size":64,"input":[{"name":"x","data_type":"TYPE_FP32","dims":[80]}],"output":[{"name":"y","data_type":"TYPE_FP32","dims":[4]}]}`},
		{"a control and a derived input without the batch", `{"sequence_batching":{"control_input":[{"name":"START","control":[{"kind":"CONTROL_SEQUENCE_START","fp32_false_true":[0,1]}]}]},
			"parameters":{"derived_inputs":{"string_value":"pos = steps"}}}`,
			"x:FP32[B,80] START:FP32[] pos:INT64[1] s:FP32[B,1]", "y:FP32[B,4] s_out:FP32[B,1]",
			`{...,"max_batch_size":64,"input":[{"name":"x","data_type":"TYPE_FP32","dims":[80]}],"output":[{"name":"y","data_type":"TYPE_FP32","dims":[4]}]}`},
		{"a correlation ID without the batch", `{"sequence_batching":{"control_input":[{"name":"ID","control":[{"kind":"CONTROL_SEQUENCE_CORRID","data_type":"TYPE_UINT64"}]}]}}`,
			"x:FP32[B,80] ID:UINT64[1] s:FP32[B,1]", "y:FP32[B,4] s_out:FP32[B,1]",
			`{...,"input":[{"name":"x","data_type":"TYPE_FP32","dims":[-1,80]}],"output":[{"name":"y","data_type":"TYPE_FP32","dims":[-1,4]}]}`},
		{"an input without the batch", `{"sequence_batching":{}}`, "x:FP32[B,80] rate:INT64[] s:FP32[B,1]", "y:FP32[B,4] s_out:FP32[B,1]",
			`{...,"max_batch_size":64,"input":[{"name":"x","data_type":"TYPE_FP32","dims":[80]},{"name":"rate","data_type":"TYPE_INT64","dims":[1],"reshape":{"shape":[]}}],"output":[{"name":"y","data_type":"TYPE_FP32","dims":[4]}]}`},
		{"no batch axis", `{"sequence_batching":{}}`, "x:FP32[1,T,80] s:FP32[1,16]", "y:FP32[1,T,4] s_out:FP32[1,16]",
			`{...,"input":[{"name":"x","data_type":"TYPE_FP32","dims":[1,-1,80]}],"output":[{"name":"y","data_type":"TYPE_FP32","dims":[1,-1,4]}]}`},
		{"no batch axis, and an input of no axes", `{"sequence_batching":{}}`, "x:FP32[1,80] rate:INT64[] s:FP32[1,16]", "y:FP32[1,4] s_out:FP32[1,16]",
			`{...,"max_batch_size":1,"input":[{"name":"x","data_type":"TYPE_FP32","dims":[1,80]},{"name":"rate","data_type":"TYPE_INT64","dims":[1],"reshape":{"shape":[]}}],"output":[{"name":"y","data_type":"TYPE_FP32","dims":[1,4]}]}`},
		{"no batch axis, and an output of no axes", `{}`, "x:FP32[1,80]", "y:FP32[]",
			`{"max_batch_size":1,"input":[{"name":"x","data_type":"TYPE_FP32","dims":[1,80]}],"output":[{"name":"y","data_type":"TYPE_FP32","dims":[1],"reshape":{"shape":[]}}]}`},
		{"only states come out", `{"sequence_batching":{}}`, "x:FP32[B,8] h:FP32[B,16]", "h_out:FP32[B,16]",
			`{...,"max_batch_size":64,"input":[{"name":"x","data_type":"TYPE_FP32","dims":[8]}],"output":[{"name":"h_out","data_type":"TYPE_FP32","dims":[16]}]}`},
		{"state of one number", `{}`, "x:FP32[B,8] h:FP32[B] g:FP32[B,2]", "y:FP32[B,8] h_out:FP32[B] g_out:FP32[B,2]",
			`{"max_batch_size":64,"input":[{"name":"x","data_type":"TYPE_FP32","dims":[8]}],"output":[{"name":"y","data_type":"TYPE_FP32","dims":[8]}],"sequence_batching":{"oldest":{"max_candidate_sequences":256},
			"state":[{"input_name":"h","output_name":"h_out","data_type":"TYPE_FP32","dims":[]},{"input_name":"g","output_name":"g_out","data_type":"TYPE_FP32","dims":[2]}]}}`},
		{"state that grows", `{}`, "x:FP32[B,8] h:FP32[B,L,2] g:FP32[B,2]", "y:FP32[B,8] h_out:FP32[B,M,2] g_out:FP32[B,2]",
			`{"max_batch_size":64,"input":[{"name":"x","data_type":"TYPE_FP32","dims":[8]}],"output":[{"name":"y","data_type":"TYPE_FP32","dims":[8]}],"sequence_batching":{"oldest":{"max_candidate_sequences":256},"state":[{"input_name":"stateful_token","output_name":"stateful_token","data_type":"TYPE_UINT8","dims":[1]}]}}`},
		{"pairs in the parameters", `{"parameters":{"state_pairs":{"string_value":"<<<a, z>>>"}}}`, "x:FP32[B,8] a:FP32[B,2]", "y:FP32[B,8] z:FP32[B,2]",
			`{...,"max_batch_size":64,"input":[{"name":"x","data_type":"TYPE_FP32","dims":[8]}],"output":[{"name":"y","data_type":"TYPE_FP32","dims":[8]}],
			"sequence_batching":{"oldest":{"max_candidate_sequences":256},"state":[{"input_name":"a","output_name":"z","data_type":"TYPE_FP32","dims":[2]}]}}`},
		{"no states", `{}`, "x:FP32[?,?,8] text:STRING[?,2]", "y:FP32[?,8]",
			`{"max_batch_size":4,"dynamic_batching":{},"input":[{"name":"x","data_type":"TYPE_FP32","dims":[-1,8]},{"name":"text","data_type":"TYPE_STRING","dims":[2]}],"output":[{"name":"y","data_type":"TYPE_FP32","dims":[8]}]}`},
		{"no states, though the names are alike", `{}`, "x:FP32[B,8]", "x_out:FP32[B,8]",
			`{"max_batch_size":4,"dynamic_batching":{},"input":[{"name":"x","data_type":"TYPE_FP32","dims":[8]}],"output":[{"name":"x_out","data_type":"TYPE_FP32","dims":[8]}]}`},
		{"states that a parameter names", `{"parameters":{"state_updates":{"string_value":"h = append(1)"}}}`, "x:FP32[B,8] h:FP32[B,T]", "h_out:FP32[B,1]",
			`{...,"max_batch_size":64,"sequence_batching":{"oldest":{"max_candidate_sequences":256},"state":[{"input_name":"stateful_token","output_name":"stateful_token","data_type":"TYPE_UINT8","dims":[1]}]},"input":[{"name":"x","data_type":"TYPE_FP32","dims":[8]}],"output":[{"name":"h_out","data_type":"TYPE_FP32","dims":[1]}]}`},
		{"no states, by the scheduler", `{"dynamic_batching":{}}`, "x:FP32[B,8] h:FP32[B,1]", "y:FP32[B,8] h_out:FP32[B,1]",
			`{...,"max_batch_size":4,"input":[{"name":"x","data_type":"TYPE_FP32","dims":[8]},{"name":"h","data_type":"TYPE_FP32","dims":[1]}],
			"output":[{"name":"y","data_type":"TYPE_FP32","dims":[8]},{"name":"h_out","data_type":"TYPE_FP32","dims":[1]}]}`},
		{"no states, the batch inside", `{}`, "x:FP32[8,B]", "y:FP32[8,B]",
			`{"input":[{"name":"x","data_type":"TYPE_FP32","dims":[8,-1]}],"output":[{"name":"y","data_type":"TYPE_FP32","dims":[8,-1]}]}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, opened, log, err := completing(t, tt.config, tt.inputs, tt.outputs)
			require.NoError(t, err)
			require.Equal(t, "/models/m/3/model.onnx", opened.Path)
			given := strings.TrimSuffix(strings.TrimPrefix(tt.config, "{"), "}")
			require.JSONEq(t, strings.Replace(tt.want, "...", given, 1), string(got))
			filled := len(log.having("filled in "))
			require.GreaterOrEqual(t, filled, 1)
			require.Len(t, log.having("model=m"), len(*log.lines))
			again, opened, _, err := completing(t, string(got), tt.inputs, tt.outputs)
			require.NoError(t, err)
			require.Nil(t, again, "a completed configuration is complete")
			require.Nil(t, opened, "and needs no look at the model")
		})
	}
}

// TestCompleteOptionalInputs: an input with a default need not be sent.
func TestCompleteOptionalInputs(t *testing.T) {
	file := runnertest.NewFile(t, "x:FP32[B,8] w:FP32[8,8]", "y:FP32[B,8]")
	file.Sig.Inputs[1].Optional = true
	server := Server{Log: slog.New(newRecorder(slog.LevelInfo)), DefaultBatch: 1, Open: func(onnx.SessionOptions) (onnx.Runner, error) { return file, nil }}
	text, err := Complete(ModelInfo{Config: []byte(`{}`)}, server)
	require.NoError(t, err)
	require.JSONEq(t, `{"max_batch_size":1,"input":[{"name":"x","data_type":"TYPE_FP32","dims":[8]}],"output":[{"name":"y","data_type":"TYPE_FP32","dims":[8]}]}`, string(text))
}

// TestCompleteDefaultBatch: the operator's default-max-batch-size rules.
func TestCompleteDefaultBatch(t *testing.T) {
	for given, want := range map[int]int{0: 0, 1: 1, 4: 64, 16: 16, 231: 231, 256: 256, math.MaxInt32: 256} {
		file := runnertest.NewFile(t, lstmInputs, lstmOutputs)
		server := Server{Log: slog.New(newRecorder(slog.LevelInfo)), DefaultBatch: given, Open: func(onnx.SessionOptions) (onnx.Runner, error) { return file, nil }}
		text, err := Complete(ModelInfo{}, server)
		require.NoError(t, err)
		cfg, err := config.Parse(text)
		require.NoError(t, err)
		require.Equal(t, want, cfg.MaxBatchSize, "for %d", given)
	}
}

func TestCompleteRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, config, inputs, outputs, want string }{
		{"no JSON", `{`, "", "", "reading the model configuration"},
		{"parameters", `{"parameters":{"logging_level":{"string_value":"loud"}}}`, "", "", `parameter logging_level is "loud"`},
		{"two ways to read the names", `{}`, "x:FP32[B,8] h:FP32[B,2]", "y:FP32[B,8] h_out:FP32[B,2] new_h:FP32[B,2]",
			`parameters { key: 'state_pairs' value { string_value: '<<<h, h_out>>>' } }; write sequence_batching { oldest { } }`},
		{"only states go in", `{"sequence_batching":{}}`, "h:FP32[B,16]", "y:FP32[B,2] h_out:FP32[B,16]", `each of its inputs "h" is a state`},
		{"no axes at all", `{"sequence_batching":{},"input":[{"name":"x","data_type":"TYPE_FP32","dims":[1,8]}]}`, "x:FP32[1,8] h:FP32[1,2]", "y:FP32[] h_out:FP32[1,2]",
			`write max_batch_size: 1`},
		{"several axes without names", `{"max_batch_size":8,"sequence_batching":{}}`, "x:FP32[?,?,8] h:FP32[?,2]", "y:FP32[?,8] h_out:FP32[?,2]",
			`it cannot run: if the batch is there, write parameters { key: 'batch_axes' `},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, _, err := completing(t, tt.config, tt.inputs, tt.outputs)
			require.ErrorContains(t, err, tt.want)
			require.Equal(t, status.InvalidArg, status.CodeOf(err))
		})
	}
	server := Server{Log: slog.New(newRecorder(slog.LevelInfo)), Open: func(onnx.SessionOptions) (onnx.Runner, error) {
		return nil, status.Errorf(status.NotFound, "no such file")
	}}
	_, err := Complete(ModelInfo{}, server)
	require.ErrorContains(t, err, "no such file")
	require.Equal(t, status.NotFound, status.CodeOf(err))
}

// FuzzComplete: whatever the configuration says, it is completed to one that is
// complete, or refused.
func FuzzComplete(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"sequence_batching":{"oldest":{}}}`, `{"max_batch_size":-3}`, `{"parameters":{"batch_axes":{"string_value":"* = none"}}}`,
		`{"parameters":{"state_pairs":{"string_value":"<<<x, y>>>"}}}`, `{"input":[{"name":"x","dims":null}]}`, `{"parameters":{"derived_inputs":{"string_value":"x = steps"}}}`, "null"} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, cfg string, states bool) {
		inputs, outputs := "x:FP32[B,T,1] n:INT64[B]", "y:FP32[B,T,1]"
		if states {
			inputs, outputs = inputs+" h:FP32[2,B,1] k:FP32[B,L,1]", outputs+" h_out:FP32[2,B,1] k_out:FP32[B,L,1]"
		}
		file := runnertest.NewFile(t, inputs, outputs)
		server := Server{Log: slog.New(newRecorder(slog.LevelError)), DefaultBatch: 4, Open: func(onnx.SessionOptions) (onnx.Runner, error) { return file, nil }}
		text, err := Complete(ModelInfo{Config: []byte(cfg)}, server)
		if err != nil || text == nil {
			return
		}
		require.True(t, json.Valid(text))
		again, err := Complete(ModelInfo{Config: text}, Server{Log: server.Log, Open: func(onnx.SessionOptions) (onnx.Runner, error) {
			return nil, errors.New("opened again")
		}})
		require.NoError(t, err, fmt.Sprintf("%s became %s", cfg, text))
		require.Nil(t, again)
	})
}
