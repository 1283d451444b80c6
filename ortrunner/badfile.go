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

// checkFile reports a missing file in simpler words than ONNX Runtime does, and
// without the path on the server's disk. The error continues "model file x".
func checkFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return status.Errorf(status.NotFound, "does not exist: copy it there, or give the name of the file that is there in the parameter onnx_file_name")
	case err != nil:
		return status.Errorf(status.Unavailable, "cannot be read: %w", errors.Unwrap(err))
	case info.IsDir():
		return status.Errorf(status.InvalidArg, "is a folder")
	case !info.Mode().IsRegular():
		return status.Errorf(status.InvalidArg, "is no regular file: want an ONNX file")
	case info.Size() == 0:
		return status.Errorf(status.InvalidArg, "is empty: copy it again, and check that the disk is not full")
	}
	file, err := os.Open(path)
	if err != nil {
		return status.Errorf(status.Unavailable, "cannot be read: %w: let the user read it that this process runs as", errors.Unwrap(err))
	}
	return file.Close()
}

// wrongFiles are beginnings of files that are often found in place of a model.
var wrongFiles = []struct{ begins, what string }{
	{"version https://git-lfs", "it is a Git LFS pointer, not the model: run git lfs pull"},
	{"<", "it is a web page or XML, not the model: download the file itself"},
	{"PK\x03\x04", "it is a ZIP archive, such as PyTorch writes, not an ONNX model: unpack it, or export the model to ONNX"},
	{"\x89HDF", "it is an HDF5 file, such as Keras writes, not an ONNX model: export the model to ONNX"},
}

// affinities is the setting that ONNX Runtime compares with the number of threads.
const affinities = "session.intra_op_thread_affinities"

// withRemedy adds to ONNX Runtime's error for a file what can be done about it.
func withRemedy(path string, err error) error {
	code, text := status.CodeOf(err), err.Error()
	switch {
	case strings.Contains(text, "thread_utils.cc"): // it checks nothing else
		return status.Errorf(status.InvalidArg, "parameter %s: want the cores of each thread but the first, separated by semicolons, so one entry less than intra_op_thread_count: %w", affinities, err)
	case strings.Contains(text, "rotobuf"): // it could not be read at all
		return status.Errorf(status.InvalidArg, "%w: %s", err, wrongFile(path))
	case code == status.Internal && (strings.Contains(text, "IR version") || strings.Contains(text, "opset")):
		return status.Errorf(status.InvalidArg, "%w: export it for an opset that ONNX Runtime %s knows", err, ort.GetVersion())
	case strings.Contains(text, "No Op registered") || strings.Contains(text, "not a registered function/op"):
		return status.Errorf(status.InvalidArg, "%w: export it with operators that ONNX Runtime %s knows, or name the library of the custom ones in model_operations { op_library_filename }", err, ort.GetVersion())
	case strings.Contains(text, "External data path does not exist"):
		return status.Errorf(status.InvalidArg, "%w: copy the file of the weights next to the model", err)
	case code == status.Internal: // it is the file that is refused
		return status.Errorf(status.InvalidArg, "%w: copy the whole file again, or export it for an opset that ONNX Runtime %s knows", err, ort.GetVersion())
	}
	return err
}

// wrongFile says what a file is that is not a protobuf.
func wrongFile(path string) string {
	const truncated = "it is truncated, or not an ONNX model: compare its size with the original, and copy it again"
	file, err := os.Open(path)
	if err != nil {
		return truncated
	}
	defer file.Close()
	head, _ := io.ReadAll(io.LimitReader(file, 64)) // what there is of it
	for _, s := range wrongFiles {
		if strings.HasPrefix(strings.TrimSpace(string(head)), s.begins) {
			return s.what
		}
	}
	return truncated
}
