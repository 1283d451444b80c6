package build

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	module      = "tritonstateful/"
	commandName = "cmd/tritonstateful"
)

// layers has every package that may import only some of the others, innermost first. What
// is not listed may import anything but what has layers above it: backend, ortrunner and
// capi. The command (internal/cli) is above all but capi, and nothing imports it.
var layers = []struct {
	name    string
	imports []string
	instead string
}{
	{"internal/status", nil, "errors know nothing of what fails: pass the words"},
	{"internal/tensor", nil, "types and shapes know nothing of who uses them: pass what is needed"},
	{"internal/statestore", []string{"internal/tensor"}, "a state store keeps bytes under keys: give it what it is to keep"},
	{"statebuffer", []string{"internal/tensor"}, "the store works on layouts and memories: say what it is to do in its own words, in an option or an interface of statebuffer"},
	{"internal/onnx", []string{"internal/tensor", "statebuffer"}, "the contract of runners holds types only: move code to the side that needs it, backend or ortrunner"},
	{"backend/config", []string{"internal/onnx", "internal/status", "internal/tensor", "statebuffer"}, "a configuration is read without a look at the model: compare it with the model in backend/plan/planner"},
	{"internal/release", []string{"backend/config", "internal/glibc", "internal/statestore", "internal/triton", "internal/version"}, "a release is made of files and of names: internal/build puts the files together"},
	{"backend/plan/batchaxis", []string{"backend/config", "internal/onnx", "internal/status", "internal/tensor", "statebuffer"}, "candidates need no plan: take what is needed from the signature, or move the code to backend/plan/planner"},
	{"backend/plan", []string{"backend/config", "backend/plan/batchaxis", "internal/onnx", "internal/status", "internal/tensor", "statebuffer"}, "a plan is data: what makes it belongs to backend/plan/planner, what follows it to backend"},
	{"backend/plan/isolation", []string{"backend/config", "backend/plan", "backend/plan/batchaxis", "internal/onnx", "internal/status", "internal/tensor", "statebuffer"}, "a trial sees a plan, and not who asks: decide in backend/plan/planner"},
	{"backend/plan/planner", []string{"backend/config", "backend/plan", "backend/plan/batchaxis", "backend/plan/isolation", "internal/onnx", "internal/status", "internal/tensor", "statebuffer"}, "plans are made before anything runs for requests: put what the execution needs into the data of backend/plan"},
	{"backend/checkpoint", []string{"backend/config", "internal/statestore", "internal/status", "internal/tensor", "statebuffer"}, "a saver knows sequences and a store, and no requests: what it needs of the execution is in checkpoint.Source"},
	{"backend", []string{"backend/checkpoint", "backend/config", "backend/plan", "backend/plan/batchaxis", "backend/plan/isolation", "backend/plan/planner", "internal/onnx", "internal/statestore", "internal/status", "internal/tensor", "statebuffer"}, "the execution is pure Go: reach C by onnx.Runner, statebuffer.Memory or backend.Batch"},
	{"ortrunner", []string{"internal/cuda", "internal/devicememory", "internal/onnx", "internal/onnxfile", "internal/status", "internal/tensor", "statebuffer"}, "a runner knows nothing of requests: put what both sides need into internal/onnx or internal/status"},
	{"capi", []string{"backend", "backend/config", "internal/cuda", "internal/gpuinfo", "internal/onnx", "internal/status", "internal/tensor", "internal/triton", "internal/version", "ortrunner"}, "entry points translate between C and package backend: put the work into backend or ortrunner"},
}

// TestImportsPointInwards: each package imports only those below it.
func TestImportsPointInwards(t *testing.T) {
	list := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
	list.Dir = "../.."
	out, err := list.Output()
	require.NoError(t, err)
	seen := 0
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		name := strings.TrimPrefix(fields[0], module)
		for _, imported := range fields[1:] {
			imported, ours := strings.CutPrefix(imported, module)
			if !ours {
				continue
			}
			if wrong := wrongArrow(name, imported); wrong != "" {
				t.Error(wrong)
			}
		}
		if layerOf(name) >= 0 {
			seen++
		}
	}
	require.Equal(t, len(layers), seen, "every layer is a package that there is")
}

// TestWrongArrows: the sentence says what to do instead.
func TestWrongArrows(t *testing.T) {
	require.Contains(t, wrongArrow("ortrunner", "backend"), "ortrunner must not import backend: a runner knows nothing of requests")
	require.Contains(t, wrongArrow("backend/plan", "backend"), "a plan is data")
	require.Contains(t, wrongArrow("internal/gpuinfo", "capi"), "move")
	require.Empty(t, wrongArrow("internal/gpuinfo", "internal/cuda"))
	require.Empty(t, wrongArrow("internal/cli/parity", "backend/plan/planner"))
	require.Empty(t, wrongArrow("cmd/tritonstateful", "internal/cli"))
	require.Contains(t, wrongArrow("internal/bench", "internal/cli"), "belongs to the command")
	require.Contains(t, wrongArrow("internal/cli", "capi"), "for Triton")
}

// wrongArrow is what is wrong with an import, or "".
func wrongArrow(name, imported string) string {
	layer := layerOf(name)
	switch {
	case layer >= 0 && !slices.Contains(layers[layer].imports, imported):
		return name + " must not import " + imported + ": " + layers[layer].instead
	case imported == "internal/cli" || strings.HasPrefix(imported, "internal/cli/"):
		if name != commandName && name != "internal/cli" && !strings.HasPrefix(name, "internal/cli/") {
			return name + " must not import " + imported + ": it belongs to the command: move what both need into a package of its own"
		}
	case name == "internal/cli" || strings.HasPrefix(name, "internal/cli/"): // the command may use everything but the entry points
		if imported == "capi" {
			return name + " must not import " + imported + ": entry points are for Triton"
		}
	case layer < 0 && (strings.HasPrefix(imported+"/", "backend/") || imported == "ortrunner" || imported == "capi"):
		return name + " must not import " + imported + ": move what both need into a package below both"
	}
	return ""
}

func layerOf(name string) int {
	for i := range layers {
		if layers[i].name == name {
			return i
		}
	}
	return -1
}
