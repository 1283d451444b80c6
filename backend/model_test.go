package backend

import (
	"log/slog"
	"testing"
	"time"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"

	"github.com/stretchr/testify/require"
)

// A model file outside of the version's folder is never opened, whichever field
// names it.
func TestModelFileStaysInItsFolder(t *testing.T) {
	host := Host{
		Log:   slog.New(slog.DiscardHandler),
		Clock: func() time.Duration { return 0 },
		Open:  func(onnx.SessionOptions) (onnx.Runner, error) { panic("a file was opened") },
	}
	for name, config := range map[string]string{
		"default_model_filename": `{"default_model_filename": "../../other/model.onnx"}`,
		"onnx_file_name":         `{"parameters": {"onnx_file_name": {"string_value": "../2/model.onnx"}}}`,
		"absolute":               `{"default_model_filename": "/etc/passwd"}`,
	} {
		t.Run(name, func(t *testing.T) {
			info := ModelInfo{Name: "m", Version: 1, Directory: t.TempDir(), Config: []byte(config)}
			model, err := NewModel(info, host)
			require.NoError(t, err) // faults are told by the instance, all at once
			_, err = model.NewInstance(InstanceInfo{Name: "m_0", Kind: "cpu"})
			require.ErrorContains(t, err, "inside the model's version folder")
			require.Equal(t, status.InvalidArg, status.CodeOf(err))
			_, err = Complete(info, host)
			require.ErrorContains(t, err, "inside the model's version folder")
		})
	}
}
