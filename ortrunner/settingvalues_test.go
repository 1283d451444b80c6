package ortrunner

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// oddValues are texts of each kind at which code that reads them may fail.
var oddValues = map[onnx.Kind][]string{
	onnx.Bool:     {"1", "0"},
	onnx.Integer:  {"-1", "-0", "0", "9223372036854775807", "-9223372036854775808", "2147483648", "+5", "007"},
	onnx.Unsigned: {"-1", "-0", "0", "9223372036854775807", "9223372036854775808", "4294967296", "+5", "007"},
	onnx.Number:   {"NaN", "-Inf", "1e999", "0x1p-2", "1_000", "+.5"},
	onnx.Text:     {"", " ", "\"", "a\nb", ";;;", "1", "-1", "+5", strings.Repeat("9", 5000), strings.Repeat("x;", 5000), "no/where", "1,2,3;4", "NaN", "%s%n"},
}

// TestOddValues: no value of a setting that passes the check ends the process. ONNX Runtime
// throws an exception that no one catches for some that it cannot read.
func TestOddValues(t *testing.T) {
	if !inChild(t) {
		return
	}
	rt, path := testRuntime(t), accumulate(2).Write(t)
	t.Chdir(t.TempDir()) // some settings are names of files to write
	for _, key := range slices.Sorted(maps.Keys(onnx.SessionKeys)) {
		kind := onnx.SessionKeys[key]
		for _, value := range oddValues[kind] {
			checked, err := kind.Check(value)
			if err != nil {
				continue
			}
			fmt.Printf("%s = %.60q\n", key, checked) // the last one is in the output of a process that ends
			opened, err := rt.Open(onnx.SessionOptions{Path: path, IntraOpThreads: 2, Session: []onnx.Setting{{Key: key, Value: checked}}})
			if err != nil {
				continue
			}
			r := opened.(*runner)
			x := floats(t, r, tensor.Shape{1, 2}, 1, 2)
			_ = r.Run([]onnx.Tensor{x, x}, leftOpen(r)) // fails for files that cannot be written
			opened.Close()
		}
	}
}
