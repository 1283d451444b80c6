package ortrunner

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend"
)

// TestRemedies: a file that is refused comes with what to do about it, and with
// nothing that would not help.
func TestRemedies(t *testing.T) {
	good := accumulate(2).Marshal()
	unknown := accumulate(2)
	unknown.Nodes[0].Op = "NoSuchOperator"
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"empty":            {nil, ": the file is empty: copy it again"},
		"Git LFS":          {[]byte("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"), ": the file is a pointer of Git LFS: fetch what it stands for, by git lfs pull"},
		"web page":         {[]byte("\n<!DOCTYPE html><html>404</html>"), ": the file is a web page: download the model again"},
		"cut off":          {good[:len(good)-9], ": the file is cut off, or no ONNX model: copy the whole file again"},
		"unknown operator": {unknown.Marshal(), " has no such operator in that opset: export the model for one that has it, or without it"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "1", "model.onnx")
			require.NoError(t, os.Mkdir(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, c.data, 0o644))
			_, err := testRuntime(t).Open(backend.SessionOptions{Path: path})
			require.Equal(t, backend.InvalidArg, backend.CodeOf(err))
			text := err.Error()
			require.Equal(t, c.want, text[max(0, len(text)-len(c.want)):])
		})
	}
}

// TestRemediesByWords has what ONNX Runtime says of files that are not made here.
func TestRemediesByWords(t *testing.T) {
	for text, want := range map[string]string{
		"Unsupported model IR version: 99, max supported IR version: 13":                                                                                 "export it for an IR version that ONNX Runtime 1.2 knows",
		"ONNX Runtime only *guarantees* support for models stamped with official released onnx opset versions. Opset 99 is under development":            "export it for an opset that ONNX Runtime 1.2 knows",
		"Fatal error: my.ops:Mine(-1) is not a registered function/op":                                                                                   "libraries of custom operators are not loaded: export the model without them",
		`External data path validation failed for initializer: w. Error: tensorprotoutils.cc:461 External data path does not exist: "1/model.onnx.data"`: "copy the file of its weights beside it",
		"something else": "copy the whole file again, or export it for an opset that ONNX Runtime 1.2 knows",
	} {
		err := refused("", "1.2", backend.Errorf(backend.Internal, "%s", text))
		require.EqualError(t, err, text+": "+want)
		require.Equal(t, backend.InvalidArg, backend.CodeOf(err))
	}
	unsupported := backend.Errorf(backend.Unsupported, "Could not find an implementation for X")
	require.Equal(t, unsupported, refused("", "1.2", unsupported), "what would help is not known")
}
