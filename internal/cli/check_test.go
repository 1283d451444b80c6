package cli

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/cli/parity"
	"tritonstateful/ortrunner/onnxtest"
)

// repository makes a model's folder with this configuration.
func repository(t testing.TB, name, config string, m onnxtest.Model) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "1"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "1", "model.onnx"), m.Marshal(), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "config.pbtxt"), []byte(config), 0o644))
	return folder
}

const (
	oldest = "backend: \"stateful\" sequence_batching { oldest { max_candidate_sequences: 16 } }\n"
	direct = "backend: \"stateful\" sequence_batching { direct { } }\n"
)

func parameter(key, value string) string {
	return fmt.Sprintf("parameters { key: %q value { string_value: %q } }\n", key, value)
}

// check runs check with --json.
func check(t testing.TB, args ...string) (code int, r checked) {
	t.Helper()
	code, out, errs := run(t, withRuntime(t, append([]string{"check", "--json"}, args...)...)...)
	require.Empty(t, errs)
	require.NoError(t, json.Unmarshal([]byte(out), &r), out)
	return code, r
}

func verdicts(r checked) map[string]string {
	all := map[string]string{}
	for _, one := range r.Results {
		all[one.Name] = one.Verdict
	}
	return all
}

// TestCheck: models that are served right.
func TestCheck(t *testing.T) {
	all := func(verdict string) map[string]string {
		return map[string]string{"one by one": verdict, "batched": verdict, "permuted": verdict, "restarted": verdict, "restored": verdict}
	}
	stateless := onnxtest.Model{
		Inputs:  []onnxtest.Value{float("x", "batch", 4)},
		Nodes:   []onnxtest.Node{{Op: "Neg", Inputs: []string{"x"}, Outputs: []string{"y"}}},
		Outputs: []onnxtest.Value{float("y", "batch", 4)},
	}
	rounded := all(parity.Close) // a mean over another batch is added up in another order
	rounded["one by one"] = parity.SameBits
	alone := all(parity.SameBits)
	alone["batched"], alone["permuted"] = parity.Skipped, parity.Skipped
	none := all(parity.SameBits)
	none["restarted"], none["restored"] = parity.Skipped, parity.Skipped
	for name, c := range map[string]struct {
		config string
		model  onnxtest.Model
		want   map[string]string
	}{
		"oldest":    {oldest, sums(), all(parity.SameBits)},
		"direct":    {direct, sums(), all(parity.SameBits)},
		"free":      {"backend: \"stateful\" dynamic_batching { }\n" + parameter("sequences", "free"), sums(), all(parity.SameBits)},
		"grows":     {oldest, cached(), rounded},
		"begins":    {oldest + parameter("initial_states", "sum = 0.5"), sums(), all(parity.SameBits)},
		"no_end":    {oldest + parameter("infer_end_requests", "0"), sums(), all(parity.SameBits)},
		"own_store": {oldest + parameter("state_store", "valkey://127.0.0.1:1"), sums(), all(parity.SameBits)},
		"alone":     {oldest + "max_batch_size: 1\n", sums(), alone},
		"stateless": {"backend: \"stateful\"\n", stateless, none},
	} {
		t.Run(name, func(t *testing.T) {
			code, r := check(t, repository(t, name, c.config, c.model))
			require.Equal(t, exitFine, code, r.Results)
			require.Equal(t, c.want, verdicts(r))
			require.True(t, r.Passed)
		})
	}
}

// TestCheckFinds: what is wrong shows, where it is wrong, and the exit code says so.
func TestCheckFinds(t *testing.T) {
	mixed := oldest + "max_batch_size: 8 input [{ name: \"x\" data_type: TYPE_FP32 dims: [ 4 ] }] output [{ name: \"y\" data_type: TYPE_FP32 dims: [ 4 ] }]\n" + parameter("verify", "never")
	code, r := check(t, repository(t, "mixing", mixed, mixing()))
	require.Equal(t, exitFound, code)
	require.False(t, r.Passed)
	require.Equal(t, parity.SameBits, verdicts(r)["one by one"])
	require.Equal(t, parity.Different, verdicts(r)["batched"])
	require.Equal(t, parity.Different, verdicts(r)["permuted"])
	require.Greater(t, r.Results[1].MaxDifference, 0.1)
	require.Contains(t, r.Results[1].Where, `output "y"`)
	require.Len(t, r.Results[1].ByStep, 12)

	code, r = check(t, repository(t, "halves", oldest+parameter("store_states_as_fp16", "1"), sums()))
	require.Equal(t, exitFound, code)
	require.Equal(t, parity.Different, verdicts(r)["one by one"])
}

// TestCheckData: contents from files, and a picture.
func TestCheckData(t *testing.T) {
	folder := t.TempDir()
	npy := filepath.Join(folder, "x.npy")
	header := "{'descr': '<f4', 'fortran_order': False, 'shape': (32,), }"
	for (len(header)+11)%64 != 0 {
		header += " "
	}
	file := binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(header)+1))
	file = append(file, header+"\n"...)
	for i := range 32 {
		file = binary.LittleEndian.AppendUint32(file, math.Float32bits(float32(i)))
	}
	require.NoError(t, os.WriteFile(npy, file, 0o644))
	wav := filepath.Join(folder, "x.wav")
	sound := append([]byte("RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x80\x3e\x00\x00\x00\x7d\x00\x00\x02\x00\x10\x00data\x40\x00\x00\x00"), make([]byte, 64)...)
	sound[50] = 0x40
	require.NoError(t, os.WriteFile(wav, sound, 0o644))
	model, picture := repository(t, "sums", oldest, sums()), filepath.Join(folder, "x.png")
	for _, data := range []string{npy, "x=" + wav} {
		code, r := check(t, model, "--data", data, "--steps", "4", "--lanes", "3", "--plot", picture)
		require.Equal(t, exitFine, code, r.Results)
		require.Equal(t, 3, r.Lanes)
		require.FileExists(t, picture)
	}
	code, _, errs := run(t, withRuntime(t, "check", model, "--data", npy, "--steps", "1", "--lanes", "1", "--extent", "3")...)
	require.Equal(t, exitFine, code, errs)
	long := repository(t, "cached", oldest, cached())
	code, out, _ := run(t, withRuntime(t, "check", long, "--data", npy)...)
	require.Equal(t, exitFine, code, out)
	require.Contains(t, out, "; open axes of requests have extent 4\n")
	code, _, errs = run(t, withRuntime(t, "check", long, "--data", npy, "--extent", "9")...)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "the file is too short: it has 32 elements, and a request needs 36")
	for _, data := range []string{"z=" + wav, filepath.Join(folder, "x.png"), filepath.Join(folder, "none.wav")} {
		code, _, errs := run(t, withRuntime(t, "check", model, "--data", data)...)
		require.Equal(t, exitFailed, code, data)
		require.NotEmpty(t, errs)
	}
}

// TestCheckUsage: what cannot be checked says what would be right.
func TestCheckUsage(t *testing.T) {
	code, _, errs := run(t, withRuntime(t, "check", file(t, "sums", sums()))...)
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "tritonstateful init")
	code, _, errs = run(t, withRuntime(t, "check", repository(t, "unclear", oldest, unclear()))...)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "state_pairs")
	code, _, _ = run(t, "check", "x", "--lanes", "0")
	require.Equal(t, exitUsage, code)
	code, _, _ = run(t, "check", "x", "--plot", "x.gif")
	require.Equal(t, exitUsage, code)
}

// TestCheckText: what people see.
func TestCheckText(t *testing.T) {
	code, out, _ := run(t, withRuntime(t, "check", repository(t, "sums", oldest, sums()))...)
	require.Equal(t, exitFine, code)
	golden(t, "check_sums.txt", out)
}
