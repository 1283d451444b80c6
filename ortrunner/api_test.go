package ortrunner

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// apiCheck compares our table with the vendor's header, at compile time.
const apiCheck = `
#include <onnxruntime_c_api.h>
#include "ortapi.h"

#define SAME(ours, theirs, what) \
  _Static_assert(__builtin_types_compatible_p(ours, theirs), what)

#define X(ordinal, result, name, parameters)                                                     \
  _Static_assert(offsetof(OrtApi, name) == ordinal * sizeof(void *), "ordinal of " #name);       \
  SAME(__typeof__(result(*) parameters), __typeof__(((OrtApi *)0)->name), "prototype of " #name);
ORTX_FUNCTIONS(X)

SAME(ortx_log_function, OrtLoggingFunction, "OrtLoggingFunction");
_Static_assert(ORTX_API_VERSION == ORT_API_VERSION, "API version");
_Static_assert(OrtDeviceAllocator == 0 && OrtMemTypeDefault == 0, "memory info");
_Static_assert(ORT_FAIL == 1 && ORT_INVALID_ARGUMENT == 2 && ORT_NO_SUCHFILE == 3 &&
               ORT_INVALID_PROTOBUF == 7 && ORT_NOT_IMPLEMENTED == 9 && ORT_INVALID_GRAPH == 10 &&
               ORT_NOT_FOUND == 14, "error codes");
_Static_assert(ONNX_TYPE_TENSOR == 1 && ONNX_TYPE_SEQUENCE == 2 && ONNX_TYPE_MAP == 3 &&
               ONNX_TYPE_OPAQUE == 4 && ONNX_TYPE_SPARSETENSOR == 5 && ONNX_TYPE_OPTIONAL == 6,
               "ONNX types");
`

// TestAPI compiles our declaration of the C API against that of the wrapper's
// module, and the element types next to it.
func TestAPI(t *testing.T) {
	source := filepath.Join(t.TempDir(), "check.c")
	text := apiCheck
	for i, e := range elementTypes {
		text += "_Static_assert(ONNX_TENSOR_ELEMENT_DATA_TYPE_" + e.name + " == " + strconv.Itoa(i) + ", \"" + e.name + "\");\n"
	}
	require.NoError(t, os.WriteFile(source, []byte(text), 0o644))
	out, err := exec.Command(compiler(), "-std=c11", "-fsyntax-only", "-I.",
		"-I"+headers(t), source).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
