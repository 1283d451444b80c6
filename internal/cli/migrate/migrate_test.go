package migrate

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/modelconfig"
)

func noLook() ([]State, error) { return nil, errors.New("not to be looked at") }

func looked(states ...State) func() ([]State, error) {
	return func() ([]State, error) { return states, nil }
}

// TestToStateful: what changes, and what stays as it is written.
func TestToStateful(t *testing.T) {
	for name, c := range map[string]struct{ before, after string }{
		"platform": {
			"platform: \"onnxruntime_onnx\"\nmax_batch_size: 4\n",
			"backend: \"stateful\"\nmax_batch_size: 4\n",
		},
		"ensemble": {"platform: \"ensemble\"", "platform: \"ensemble\""},
		"backend, in place": {
			"name: 'm'  # ours\nbackend : \"onnxruntime\" # was ORT\nmax_batch_size: 4",
			"name: 'm'  # ours\nbackend: \"stateful\" # was ORT\nmax_batch_size: 4",
		},
		"nothing": {
			"backend: \"stateful\" parameters { key: \"state_pairs\" value { string_value: \"<<<a, b>>>\" \" <<<c, d>>>\" } }",
			"backend: \"stateful\" parameters { key: \"state_pairs\" value { string_value: \"<<<a, b>>>\" \" <<<c, d>>>\" } }",
		},
		"the last of several controls": {
			"backend: \"stateful\"\nsequence_batching {\n  control_input [\n    { name: \"s\" control [{ kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] }] },\n    # An ID.\n    { name: \"id\" control [{ kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 }] }\n  ]\n}\n",
			"backend: \"stateful\"\nsequence_batching {\n  control_input [\n    { name: \"s\" control [{ kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] }] }\n  ]\n}\n",
		},
		"the first of several controls": {
			"backend: \"stateful\" sequence_batching { control_input [ { name: \"id\" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_INT32 } }, { name: \"t\" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } } ] }",
			"backend: \"stateful\" sequence_batching { control_input [ { name: \"t\" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } } ] }",
		},
		"escapes and numbers": {
			"backend: \"\\163tate\" 'ful';\nsequence_batching: < control_input: [ { name: \"i\\x64\", control: { kind: 3; data_type: 5 } } ]; >\nresponse_cache: { enable: true };\n",
			"backend: \"\\163tate\" 'ful';\nsequence_batching: < >\n",
		},
		"accelerators": {
			"backend: \"stateful\"\noptimization { execution_accelerators {\n  gpu_execution_accelerator [ { name: \"tensorrt\" }, { name: \"directml\" } ]\n} }\n",
			"backend: \"stateful\"\noptimization { execution_accelerators {\n  gpu_execution_accelerator [ { name: \"tensorrt\" } ]\n} }\n",
		},
		"ragged batches": {
			"backend: \"stateful\"\nbatch_input [ { kind: BATCH_ELEMENT_COUNT target_name: \"n\" data_type: TYPE_FP32 source_input: \"x\" } ]\n",
			"backend: \"stateful\"\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Migrate(c.before, noLook, Options{To: Stateful})
			require.NoError(t, err)
			require.Equal(t, c.after, r.After)
			require.Equal(t, c.before != c.after, len(r.Changes) > 0)
			again, err := Migrate(r.After, noLook, Options{To: Stateful})
			require.NoError(t, err)
			require.Empty(t, again.Changes, "once is enough")
		})
	}
}

// TestListToPairs: states begin as they did, and have as many slots.
func TestListToPairs(t *testing.T) {
	r, err := Migrate(`backend: "stateful"
sequence_batching {
  state [
    { input_name: "a" output_name: "b" data_type: TYPE_FP32 dims: [ 4 ] },
    { input_name: "c" output_name: "d" data_type: TYPE_FP32 dims: [ -1, 8 ] },
    { input_name: "e" output_name: "f" data_type: TYPE_FP32 dims: [ 4 ] initial_state { name: "i" data_type: TYPE_FP32 dims: [ 4 ] data_file: "i.npy" } }
  ]
}
`, noLook, Options{To: Stateful, Pairs: true})
	require.NoError(t, err)
	require.Equal(t, `backend: "stateful"
sequence_batching {
}
parameters { key: "state_pairs" value { string_value: "<<<a, b>>> <<<c, d>>> <<<e, f>>>" } }
parameters { key: "initial_states" value { string_value: "c = 0[1,8]; e = file:i.npy" } }
parameters { key: "max_candidate_sequence_use_ratio" value { string_value: "1" } }
`, r.After)
	require.Empty(t, r.Open)
}

const ours = `backend: "stateful"
sequence_batching { oldest { max_candidate_sequences: 4 } }
parameters [
  { key: "state_pairs" value { string_value: "<<<h*, next_h*>>>" } },
  { key: "batch_axes" value { string_value: "h = 1" } },
  { key: "batch_padding" value { string_value: "max" } }
]
`

// TestToNVIDIA: all pairs are written, and what it cannot do is said.
func TestToNVIDIA(t *testing.T) {
	r, err := Migrate(ours, looked(State{Input: "h1", Output: "next_h1", Zeros: true}, State{Input: "h2", Output: "next_h2", Begins: "1"}), Options{To: NVIDIA})
	require.NoError(t, err)
	require.Equal(t, `backend: "stateful"
sequence_batching { oldest { max_candidate_sequences: 4 } }
parameters { key: "onnx_file_name" value { string_value: "model.onnx" } }
parameters { key: "state_pairs" value { string_value: "<<<h1, next_h1>>> <<<h2, next_h2>>>" } }
`, r.After)
	require.Len(t, r.Open, 3)
	require.Contains(t, r.Open[0], "batch_axes = h = 1")
	require.Contains(t, r.Open[1], "write input, output and max_batch_size")
	require.Contains(t, r.Open[2], "state h2 begins with 1")
}

// TestToTriton: the list has types and dims of the model, and what it cannot do is said.
func TestToTriton(t *testing.T) {
	r, err := Migrate(ours, looked(
		State{Input: "h1", Output: "next_h1", DataType: "TYPE_FP32", Dims: []int64{2, -1}, Zeros: true},
		State{Input: "h2", Output: "next_h2", DataType: "TYPE_INT64", Dims: []int64{4}, BatchAxis: 1, Zeros: true},
	), Options{To: Triton})
	require.NoError(t, err)
	config, err := modelconfig.Parse([]byte(r.After))
	require.NoError(t, err)
	require.Equal(t, "onnxruntime", config.GetBackend())
	require.Empty(t, config.GetParameters())
	states := config.GetSequenceBatching().GetState()
	require.Len(t, states, 2)
	require.Equal(t, []int64{2, -1}, states[0].GetDims())
	require.Equal(t, []int64{2, 1}, states[0].GetInitialState()[0].GetDims())
	require.Len(t, r.Open, 2)
	require.Contains(t, r.Open[1], "state h2 has its batch at axis 1")
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		text string
		to   Target
		want string
	}{
		{"bakend: 1", Stateful, "bakend"},
		{`backend: "stateful"`, "tensorflow", "want stateful, nvidia or triton"},
		{`backend: "stateful"`, NVIDIA, "not to be looked at"},
		{`backend: "stateful"`, Triton, "has no sequence_batching"},
	} {
		_, err := Migrate(c.text, noLook, Options{To: c.to})
		require.ErrorContains(t, err, c.want)
	}
	_, err := Migrate(`sequence_batching { }`, looked(), Options{To: NVIDIA})
	require.ErrorContains(t, err, "has no states")
}

// FuzzMigrate: what can be read can be migrated, and read after that.
func FuzzMigrate(f *testing.F) {
	f.Add(ours)
	f.Add("platform: 'onnxruntime_onnx'\nsequence_batching < state: [ < input_name: 'a' output_name: 'b' dims: -1; dims: 2 > ], >#")
	f.Add(`backend: "\163\x74\u0061te" "ful" name: "\n\U0001F600\ud83d\ude00"`)
	f.Add(`backend: "state" "ful" parameters: { key: "k\"" value: { string_value: '\'' } };`)
	f.Fuzz(func(t *testing.T, text string) {
		before, err := modelconfig.Parse([]byte(text))
		if err != nil {
			return
		}
		// Both parsers read the same values.
		if fields, err := parse(text); err == nil {
			require.Equal(t, before.GetBackend(), valueOf(fields, "backend"), "%q", text)
			require.Equal(t, before.GetName(), valueOf(fields, "name"), "%q", text)
		}
		for _, o := range []Options{{To: Stateful}, {To: Stateful, Pairs: true}, {To: NVIDIA}, {To: Triton}} {
			r, err := Migrate(text, looked(State{Input: "a", Output: "b", DataType: "TYPE_FP32", Zeros: true}), o)
			if err != nil {
				require.NotContains(t, err.Error(), "defect", "%q", text)
				continue
			}
			// What it must not touch means the same.
			after, err := modelconfig.Parse([]byte(r.After))
			require.NoError(t, err)
			for _, same := range []func(*modelconfig.ModelConfig) any{
				func(m *modelconfig.ModelConfig) any { return m.GetInput() },
				func(m *modelconfig.ModelConfig) any { return m.GetInstanceGroup() },
				func(m *modelconfig.ModelConfig) any { return m.GetSequenceBatching().GetOldest() },
				func(m *modelconfig.ModelConfig) any { return m.GetName() },
			} {
				require.Equal(t, fmt.Sprint(same(before)), fmt.Sprint(same(after)), "%q", text)
			}
		}
	})
}
