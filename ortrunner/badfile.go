package ortrunner

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	ort "github.com/yalue/onnxruntime_go"

	"tritonstateful/internal/status"
)

// checkFile tells of a missing file in simpler words than ONNX Runtime does, and
// without the path on the server's disk. The error continues "model file x".
func checkFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return status.Errorf(status.NotFound, "does not exist: copy it there, or name another by the parameter onnx_file_name")
	case err != nil:
		return status.Errorf(status.Unavailable, "cannot be read: %w", errors.Unwrap(err))
	case info.IsDir():
		return status.Errorf(status.InvalidArg, "is a folder")
	case info.Size() == 0:
		return status.Errorf(status.InvalidArg, "is empty: copy it again, and see that the disk is not full")
	}
	return nil
}

// strangers are beginnings of files that are often found in a model's place.
var strangers = []struct{ begins, what string }{
	{"version https://git-lfs", "it is a pointer of Git LFS and not the model: fetch that by git lfs pull"},
	{"<", "it is a page of the web or XML and not the model: download the file itself"},
	{"PK\x03\x04", "it is a ZIP archive, such as PyTorch writes, and not an ONNX model: unpack it, or export the model to ONNX"},
	{"\x89HDF", "it is an HDF5 file, such as Keras writes, and not an ONNX model: export the model to ONNX"},
}

// withRemedy adds to ONNX Runtime's refusal of a file what can be done about it.
func withRemedy(path string, err error) error {
	code, text := status.CodeOf(err), err.Error()
	switch {
	case strings.Contains(text, "rotobuf"): // it could not be read at all
		return status.Errorf(status.InvalidArg, "%w: %s", err, stranger(path))
	case code == status.Internal && (strings.Contains(text, "IR version") || strings.Contains(text, "opset")):
		return status.Errorf(status.InvalidArg, "%w: export it for an opset that ONNX Runtime %s knows", err, ort.GetVersion())
	case strings.Contains(text, "No Op registered") || strings.Contains(text, "not a registered function/op"):
		return status.Errorf(status.InvalidArg, "%w: export it with operators that ONNX Runtime %s knows; custom ones are not loaded", err, ort.GetVersion())
	case strings.Contains(text, "External data path does not exist"):
		return status.Errorf(status.InvalidArg, "%w: copy the file of its weights beside it", err)
	case code == status.Internal: // it is the file that is refused
		return status.Errorf(status.InvalidArg, "%w: copy the whole file again, or export it for an opset that ONNX Runtime %s knows", err, ort.GetVersion())
	}
	return err
}

// stranger says what a file is that is no protobuf.
func stranger(path string) string {
	const cutOff = "it is cut off, or no ONNX model: compare its size with that of the original, and copy it again"
	file, err := os.Open(path)
	if err != nil {
		return cutOff
	}
	defer file.Close()
	head, _ := io.ReadAll(io.LimitReader(file, 64)) // what there is of it
	for _, s := range strangers {
		if strings.HasPrefix(strings.TrimSpace(string(head)), s.begins) {
			return s.what
		}
	}
	return cutOff
}
