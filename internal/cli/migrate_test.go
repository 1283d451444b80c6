package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/modelconfig"
	"tritonstateful/ortrunner/onnxtest"
)

// ortConfig is that of a model with implicit state on Triton's onnxruntime backend, as people write them.
const ortConfig = `# Sums, for the demo.
platform: "onnxruntime_onnx"
max_batch_size: 8
input [{ name: "x" data_type: TYPE_FP32 dims: [ 4 ] }]
output [{ name: "y" data_type: TYPE_FP32 dims: [ 4 ] }]

sequence_batching {
  max_sequence_idle_microseconds: 60000000 # a minute
  oldest { max_candidate_sequences: 64 }
  # Nobody remembers why.
  control_input [
    {
      name: "CORRID"
      control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ]
    }
  ]
  state [
    {
      input_name: "sum"
      output_name: "next_sum"
      data_type: TYPE_FP32
      dims: [ 4 ]
      initial_state: { name: "start" data_type: TYPE_FP32 dims: [ 4 ] data_file: "start.bin" }
    }
  ]
}
optimization {
  execution_accelerators { cpu_execution_accelerator: [ { name: "openvino" } ] }
}
response_cache { enable: true }
`

// migratable makes a model repository in the working directory, with a model and its config.pbtxt.
func migratable(t *testing.T, name, config string, m onnxtest.Model) {
	t.Helper()
	files(t, map[string]string{
		"models/" + name + "/config.pbtxt": config, "models/" + name + "/1/model.onnx": string(m.Marshal()),
		"models/" + name + "/initial_state/start.bin": "0123456789abcdef",
	})
}

// TestMigratePage: the page shows what the command prints.
func TestMigratePage(t *testing.T) {
	library := withRuntime(t)[1]
	t.Chdir(t.TempDir())
	migratable(t, "sums", ortConfig, sums())
	migratable(t, "short", `backend: "stateful"
sequence_batching { max_sequence_idle_microseconds: 60000000 oldest { max_candidate_sequences: 64 } }
parameters { key: "initial_states" value { string_value: "sum = 1" } }
`, sums())
	checkPage(t, "command-migrate.md", "tritonstateful migrate", "tritonstateful --onnxruntime "+library+" migrate")
}

// TestMigratedSums: the model has the same states before and after, whatever way they are declared.
func TestMigratedSums(t *testing.T) {
	onnxruntime := withRuntime(t)
	t.Chdir(t.TempDir())
	migratable(t, "sums", ortConfig, sums())
	require.NoError(t, os.WriteFile("models/sums/config.pbtxt", []byte(ortConfig), 0o644))
	var inspections []string
	for _, args := range [][]string{{}, {"--pairs"}, {"--to", "nvidia"}} {
		code, out, errs := run(t, append(onnxruntime, append([]string{"migrate", "models", "--write"}, args...)...)...)
		require.LessOrEqual(t, code, exitFound, errs)
		require.Contains(t, out, "wrote 1 file")
		info, err := os.Stat("models/sums/config.pbtxt")
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "the mode stays")
		code, out, errs = run(t, append(onnxruntime, "inspect", "models/sums", "--json")...)
		require.Equal(t, exitFine, code, out+errs)
		var seen struct {
			Tensors []struct{ Role, Name string }
		}
		require.NoError(t, json.Unmarshal([]byte(out), &seen))
		text, err := json.Marshal(seen)
		require.NoError(t, err)
		inspections = append(inspections, string(text))
	}
	require.Contains(t, inspections[0], "state")
	require.Equal(t, inspections[0], inspections[1])
	require.Equal(t, inspections[0], inspections[2])

	code, out, errs := run(t, append(onnxruntime, "migrate", "models", "--to", "triton", "--write")...)
	require.Equal(t, exitFine, code, out+errs)
	text, err := os.ReadFile("models/sums/config.pbtxt")
	require.NoError(t, err)
	config, err := modelconfig.Parse(text)
	require.NoError(t, err)
	require.Equal(t, "onnxruntime", config.GetBackend())
	require.Equal(t, "sum", config.GetSequenceBatching().GetState()[0].GetInputName())
	require.Equal(t, []int64{4}, config.GetSequenceBatching().GetState()[0].GetDims())
	require.Contains(t, string(text), "# a minute", "comments stay")
}

// TestMigrateExamples: those of NVIDIA run as they are, but for the control that a client can crash the server by.
func TestMigrateExamples(t *testing.T) {
	code, out, _ := run(t, "migrate", filepath.Join("..", "..", "models"), "--json")
	require.Equal(t, exitFine, code)
	var result struct {
		Files []struct {
			File    string
			Changes []struct{ What, Why string }
			Written bool
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &result))
	changed := map[string]bool{}
	for _, f := range result.Files {
		require.False(t, f.Written)
		for _, change := range f.Changes {
			require.Contains(t, change.What, "remove the control", f.File)
			changed[filepath.Base(filepath.Dir(f.File))] = true
		}
	}
	for _, name := range []string{"accumulate_fp32", "accumulate_int32"} {
		require.True(t, changed[name], name)
	}
	require.False(t, changed["mixed_io_bool_int8"], "its control is a string")
	require.False(t, changed["implicit_state"])
	require.False(t, changed["ensemble"])
}

func TestMigrateArguments(t *testing.T) {
	for want, args := range map[string][]string{
		"want stateful, nvidia or triton":   {"migrate", ".", "--to", "vllm"},
		"is no folder":                      {"migrate", "migrate.go"},
		"there is no config.pbtxt":          {"migrate", t.TempDir()},
		"--pairs is for --to stateful":      {"migrate", ".", "--to", "triton", "--pairs"},
		"migrate has 0 arguments: want DIR": {"migrate"},
	} {
		code, _, errs := run(t, args...)
		require.Equal(t, exitUsage, code)
		require.Contains(t, errs, want)
	}
	code, _, errs := run(t, "migrate", "nothing")
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "nothing: no such file or directory: want the folder of a model")
}

// TestMigrateVarying: states whose size changes are not forgotten, and what the targets do with them is said.
func TestMigrateVarying(t *testing.T) {
	for to, want := range map[string]string{
		"triton": "state cache changes its size from step to step: Triton's onnxruntime backend runs only sequences of one size together",
		"nvidia": "state cache changes its size from step to step: NVIDIA's backend keeps only states of one size",
	} {
		code, out, errs := run(t, withRuntime(t, "migrate", repository(t, "cached", oldest, cached()), "--to", to)...)
		require.Equal(t, exitFound, code, errs)
		require.Contains(t, out, want)
		require.Contains(t, out, "next_cache")
	}
}
