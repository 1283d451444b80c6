package backend

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnx/runnertest"
)

// TestRunsOfUnknownRank: runs show where the batch of such an output is.
func TestRunsOfUnknownRank(t *testing.T) {
	declared := &onnx.Signature{Inputs: runnertest.Tensors(t, "x:FP32[B,8] h0:FP32[B,16]"), Outputs: runnertest.Tensors(t, "y:FP32[B,8] hn:FP32[B,16]")}
	sig := &onnx.Signature{Inputs: declared.Inputs, Outputs: slices.Clone(declared.Outputs)}
	sig.Outputs[1].Dims, sig.Outputs[1].Symbols = nil, nil
	file := &runnertest.File{Sig: *sig, Runs: func(_ *onnx.Signature, inputs, outputs []onnx.Tensor) error {
		return outermost(declared, inputs, outputs)
	}}
	text, err := Complete(ModelInfo{Name: "m", Config: []byte(`{"sequence_batching":{}}`)}, Server{
		Log: slog.New(slog.DiscardHandler), DefaultBatch: config.ServerBatch, Open: func(onnx.SessionOptions) (onnx.Runner, error) { return file, nil },
	})
	require.NoError(t, err)
	cfg, err := config.Parse(text)
	require.NoError(t, err)
	require.Equal(t, 64, cfg.MaxBatchSize)
	plans(t, text, sig)
}

// TestCompleteByNames: three lines are enough where names contradict shapes, and
// what the names would have said is in the log.
func TestCompleteByNames(t *testing.T) {
	const three = `{"sequence_batching":{"oldest":{}}}`
	_, _, log, err := completing(t, three, "input_1:FP32[B,3,41] input_2:FP32[B,64]", "output_1:FP32[B,T,1] output_2:FP32[B,64]")
	require.NoError(t, err)
	require.Len(t, log.having(`INFO filled in input "input_1" TYPE_FP32 [3,41] from the model`), 1)
	require.Len(t, log.having(`INFO input "input_1" and output "output_1" are`), 1)

	_, _, log, err = completing(t, three, lstmInputs, lstmOutputs)
	require.NoError(t, err)
	require.Len(t, log.having(`guessed from the names: parameters { key: 'state_pairs' value { string_value: '<<<h, h_out>>> <<<c, c_out>>>' } }`), 1)

	_, _, log, err = completing(t, `{}`, "audio_in:FP32[B,8] h_in:FP32[B,2]", "audio_out:FP32[B,8] h_out:FP32[B,2]")
	require.NoError(t, err)
	require.Len(t, log.having(`some of <<<audio_in, audio_out>>> <<<h_in, h_out>>> are states, write those as parameters { key: 'state_pairs' value { string_value: '<<<INPUT, OUTPUT>>>' } }`), 1)
}

// TestCompleteLeavesOutWhatHasNoShape: an output whose rank is unknown cannot be
// described; a state it can be.
func TestCompleteLeavesOutWhatHasNoShape(t *testing.T) {
	for _, tt := range []struct{ config, outputs, out, unknown string }{
		{`{"sequence_batching":{}}`, "y:FP32[B,8] hn:FP32[]", "y", "hn"},
		{`{}`, "y:FP32[B,8] other:FP32[]", "y", "other"},
	} {
		file := runnertest.NewFile(t, "x:FP32[B,8] h0:FP32[2,B,16]", tt.outputs)
		file.Sig.Outputs[1].Dims, file.Sig.Outputs[1].Symbols = nil, nil
		log := newRecorder(slog.LevelInfo)
		server := Server{Log: slog.New(log), DefaultBatch: config.ServerBatch, Open: func(onnx.SessionOptions) (onnx.Runner, error) { return file, nil }}
		text, err := Complete(ModelInfo{Name: "m", Config: []byte(tt.config)}, server)
		require.NoError(t, err)
		cfg, err := config.Parse(text)
		require.NoError(t, err)
		require.Len(t, cfg.Outputs, 1)
		require.Equal(t, tt.out, cfg.Outputs[0].Name)
		left := log.having(`output "` + tt.unknown + `" is left out`)
		require.Len(t, left, map[string]int{"hn": 0, "other": 1}[tt.unknown])
	}
}
