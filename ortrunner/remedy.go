package ortrunner

import (
	"bytes"
	"io"
	"os"
	"strings"

	"tritonstateful/backend"
)

// refused is the error for a model file that ONNX Runtime does not take, with what
// to do about it. A plain failure of ONNX Runtime's is the file's fault, too.
func refused(path, version string, err error) error {
	remedy := remedyFor(path, version, err.Error())
	code := backend.CodeOf(err)
	if code == backend.Internal {
		code = backend.InvalidArg
		if remedy == "" {
			remedy = "copy the whole file again, or export it for an opset that ONNX Runtime " + version + " knows"
		}
	}
	if remedy == "" {
		return err
	}
	return backend.Errorf(code, "%w: %s", err, remedy)
}

// remedyFor tells by the words of ONNX Runtime, and by the beginning of the file
// where it is no model at all; it is empty where neither tells.
func remedyFor(path, version, text string) string {
	for _, r := range []struct{ words, remedy string }{
		{"model IR version", "export it for an IR version that ONNX Runtime " + version + " knows"},
		{"released onnx opset versions", "export it for an opset that ONNX Runtime " + version + " knows"},
		{"is not a registered function/op", "libraries of custom operators are not loaded: export the model without them"},
		{"No Op registered for", "ONNX Runtime " + version + " has no such operator in that opset: export the model for one that has it, or without it"},
		{"External data path does not exist", "copy the file of its weights beside it"},
	} {
		if strings.Contains(text, r.words) {
			return r.remedy
		}
	}
	if !strings.Contains(text, "Protobuf parsing failed") && !strings.Contains(text, "No graph was found") {
		return ""
	}
	head := beginning(path)
	switch {
	case len(head) == 0:
		return "the file is empty: copy it again"
	case bytes.HasPrefix(head, []byte("version https://git-lfs")):
		return "the file is a pointer of Git LFS: fetch what it stands for, by git lfs pull"
	case bytes.HasPrefix(head, []byte("<")):
		return "the file is a web page: download the model again"
	default:
		return "the file is cut off, or no ONNX model: copy the whole file again"
	}
}

// beginning is the first bytes of a file, as far as they can be read.
func beginning(path string) []byte {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	head := make([]byte, 64)
	n, _ := io.ReadFull(file, head)
	return bytes.TrimSpace(head[:n])
}
