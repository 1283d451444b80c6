package cli

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/ortrunner/onnxtest"
)

// wide is sums with a state of 64 KiB and a request of 4 bytes.
func wide() onnxtest.Model {
	m := sums()
	m.Inputs = []onnxtest.Value{float("x", "batch", 1), float("sum", "batch", 16384)}
	m.Outputs = []onnxtest.Value{float("y", "batch", 1), float("next_sum", "batch", 16384)}
	m.Nodes[1] = onnxtest.Node{Op: "ReduceMax", Inputs: []string{"next_sum"}, Outputs: []string{"y"}, Attributes: []onnxtest.Attribute{{Name: "axes", Value: []int64{1}}}}
	return m
}

// plan runs plan with --json.
func plan(t *testing.T, args ...string) (code int, r planned) {
	t.Helper()
	code, out, errs := run(t, withRuntime(t, append([]string{"plan", "--json"}, args...)...)...)
	require.Empty(t, errs)
	require.NoError(t, json.Unmarshal([]byte(out), &r), out)
	return code, r
}

// TestPlan: what is known of a model beforehand, and what is measured of it.
func TestPlan(t *testing.T) {
	const kilobyte = 1 << 10
	code, r := plan(t, repository(t, "wide", oldest, wide()), "--sequences", "400", "--memory", "1GiB", "--rate", "5")
	require.Equal(t, exitFound, code)
	require.Equal(t, "max_candidate_sequences: 445", r.Missing)
	require.Equal(t, 400, r.Slots) // max_candidate_sequence_use_ratio is 0.9
	require.EqualValues(t, 64*kilobyte, r.SlotBytes)
	require.EqualValues(t, 64*kilobyte, r.StateBytes)
	require.InDelta(t, 64*kilobyte, r.SequenceBytes, 4*kilobyte)
	require.InDelta(t, 400*64*kilobyte, r.Resident, 0.35*400*64*kilobyte) // and the batches
	require.InDelta(t, 1<<30/(64*kilobyte), *r.Fitting, 1500)
	require.InDelta(t, 64*kilobyte, r.Saved, kilobyte)
	traffic := map[string]int64{}
	for _, policy := range r.Traffic {
		traffic[policy.Checkpoint] = policy.BytesPerSecond / r.Saved
	}
	require.Equal(t, map[string]int64{"interval=1000": 400, "interval=10000": 40, "steps=10": 200, "sync": 2000}, traffic)

	code, r = plan(t, repository(t, "wide", oldest, wide()), "--gpu-memory", "1GiB")
	require.Equal(t, exitFine, code)
	require.Equal(t, 16, r.Sequences, "as many as there are slots")
	require.InDelta(t, 1<<30/(64*kilobyte), *r.FittingGPU, 200)

	code, r = plan(t, repository(t, "free", "backend: \"stateful\" dynamic_batching { }\n"+parameter("sequences", "free"), sums()), "--sequences", "300")
	require.Equal(t, exitFound, code)
	require.Contains(t, r.Missing, "max_sequences")
	code, r = plan(t, repository(t, "ratio", oldest+parameter("max_candidate_sequence_use_ratio", "0.5"), sums()), "--sequences", "100")
	require.Equal(t, exitFound, code)
	require.Equal(t, "max_candidate_sequences: 200", r.Missing)
	code, r = plan(t, repository(t, "enough", oldest, cached()), "--sequences", "16", "--steps", "3", "--extent", "5")
	require.Equal(t, exitFine, code)
	require.Empty(t, r.Missing)
	require.EqualValues(t, 3*5*4*4, r.StateBytes) // three steps of five frames of four numbers
}

// TestPlanFaults: what cannot be planned.
func TestPlanFaults(t *testing.T) {
	for _, args := range [][]string{{"plan", "x", "--sequences", "-1"}, {"plan", "x", "--rate", "NaN"}, {"plan", "x", "--gpu-memory", "much"}, {"plan", "x", "--memory", "much"}, {"plan", "x", "--memory", "0GB"}} {
		code, _, _ := run(t, args...)
		require.Equal(t, exitUsage, code, args)
	}
	code, _, errs := run(t, withRuntime(t, "plan", repository(t, "direct", direct, sums()), "--sequences", "100")...)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "64 batch slots")
	stateless := onnxtest.Model{
		Inputs:  []onnxtest.Value{float("x", "batch", 4)},
		Nodes:   []onnxtest.Node{{Op: "Neg", Inputs: []string{"x"}, Outputs: []string{"y"}}},
		Outputs: []onnxtest.Value{float("y", "batch", 4)},
	}
	code, _, errs = run(t, withRuntime(t, "plan", repository(t, "stateless", "backend: \"stateful\"", stateless))...)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "nothing to plan")
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{"": 0, "16GB": 16e9, "1.5 GiB": 3 << 29, "512mib": 512 << 20, "7": 7} {
		got, err := parseSize("--memory", text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

func TestSized(t *testing.T) {
	for bytes, want := range map[int64]string{0: "0 B", 904: "904 B", 999: "999 B", 1000: "1.00 kB", 1052084: "1.05 MB", 13312800: "13.3 MB", 133128: "133 kB", 999600: "1.00 MB", 16e9: "16.0 GB"} {
		require.Equal(t, want, sized(bytes))
	}
}
