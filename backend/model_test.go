package backend

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
)

// A model file outside of the version's folder is never opened, whichever field
// names it.
func TestModelFileStaysInItsFolder(t *testing.T) {
	server := Server{
		Log:   slog.New(slog.DiscardHandler),
		Clock: func() time.Duration { return 0 },
		Open:  func(onnx.SessionOptions) (onnx.Runner, error) { panic("a file was opened") },
	}
	for name, cfg := range map[string]string{
		"default_model_filename": `{"default_model_filename": "../../other/model.onnx"}`,
		"onnx_file_name":         `{"parameters": {"onnx_file_name": {"string_value": "../2/model.onnx"}}}`,
		"absolute":               `{"default_model_filename": "/etc/passwd"}`,
	} {
		t.Run(name, func(t *testing.T) {
			info := ModelInfo{Name: "m", Version: 1, Directory: t.TempDir(), Config: []byte(cfg)}
			model, err := NewModel(info, server)
			require.NoError(t, err) // faults are told by the instance, all at once
			_, err = model.NewInstance(InstanceInfo{Name: "m_0", Kind: "cpu"})
			require.ErrorContains(t, err, "inside the model's version folder")
			require.Equal(t, status.InvalidArg, status.CodeOf(err))
			_, err = Complete(info, server)
			require.ErrorContains(t, err, "inside the model's version folder")
		})
	}
}

// TestMisspeltParameterIsInTheError: what keeps a model from loading may be a name
// that was not understood.
func TestMisspeltParameterIsInTheError(t *testing.T) {
	_, err := load(t, configEdit(func(c *config.Config) {
		c.Parameters["state_pair"], c.Parameters["colour"] = c.Parameters["state_pairs"], config.Value{String: "red"}
		delete(c.Parameters, "state_pairs")
	}), sig(func(s *onnx.Signature) { s.Outputs[1].Name = "Sum" }))
	require.ErrorContains(t, err, "could not find any state tensors")
	require.ErrorContains(t, err, "\n"+`parameter "state_pair" is unknown`)
	require.NotContains(t, err.Error(), "colour")
	require.Equal(t, status.InvalidArg, status.CodeOf(err))
}
