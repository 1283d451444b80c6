package ortrunner

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/onnx"
)

// notForFiles are names in the library that look like entries of a session but have another
// way to be set, are for models that are not in a file, or change threads of the process.
var notForFiles = regexp.MustCompile(`^session\.(compile_only|enable_cpu_mem_arena|enable_mem_pattern|enable_profiling|execution_mode|graph_optimization_level|in(ter|tra)_op_num_threads|log_\w+|model_external_initializers_file_folder_path|optimized_model_filepath|set_denormal_as_zero|use_deterministic_compute|use_ort_model_bytes_directly|use_per_session_threads)$|^ep\.cuda\.$`)

// requireKeys: the code of a library has the names of all these settings.
func requireKeys(t *testing.T, code []byte, all ...map[string]onnx.Kind) {
	t.Helper()
	for _, keys := range all {
		for key := range keys {
			// The compiler puts some strings into instructions, in pieces of 16 or 8 bytes.
			piece := max(len(key)/16*16, min(len(key), 8))
			if bytes.Contains(code, []byte(key[:piece])) {
				continue
			}
			for from := 0; from+8 <= len(key); from += 8 {
				if !bytes.Contains(code, []byte(key[from:from+8])) {
					t.Errorf("the library has no setting %s", key)
					break
				}
			}
		}
	}
}

// TestProviderKeys: the options of accelerators are those of the execution providers, where
// their libraries are.
func TestProviderKeys(t *testing.T) {
	for name, keys := range map[string]map[string]onnx.Kind{"cuda": onnx.CUDAKeys, "tensorrt": onnx.TensorRTKeys} {
		code, err := os.ReadFile(filepath.Join(filepath.Dir(library(t)), "libonnxruntime_providers_"+name+".so"))
		if err != nil {
			t.Skip("this ONNX Runtime is for the CPU only")
		}
		requireKeys(t, code, keys)
	}
}

// TestKeysAreTheLibrarys: the settings that are passed on are those that this ONNX Runtime
// has in its code.
func TestKeysAreTheLibrarys(t *testing.T) {
	code, err := os.ReadFile(library(t))
	require.NoError(t, err)
	keys := maps.Clone(onnx.SessionKeys)
	for key, arch := range map[string]string{"session.x64quantprecision": "amd64", "mlas.enable_gemm_fastmath_arm64_bfloat16": "arm64"} {
		if arch != runtime.GOARCH { // the one that has code which reads it
			delete(keys, key)
		}
	}
	requireKeys(t, code, keys, onnx.RunKeys)
	name := regexp.MustCompile(`^(session|optimization|ep|mlas|memory)\.[a-z0-9_.]+$`)
	for text := range bytes.SplitSeq(code, []byte{0}) {
		if len(text) < 8 || !name.Match(text) {
			continue
		}
		_, ofSession := onnx.SessionKeys[string(text)]
		_, ofRun := onnx.RunKeys[string(text)]
		require.True(t, ofSession || ofRun || notForFiles.Match(text), "the library has the setting %s, which onnx.SessionKeys lacks", text)
	}
}
