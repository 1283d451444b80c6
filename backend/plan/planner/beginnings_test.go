package planner

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnx/runnertest"
)

// TestStatesBeginEmpty: a state that would start empty and stay so is found at load, whether
// its batch is given or inferred: an error if the model does not run so, else a warning.
func TestStatesBeginEmpty(t *testing.T) {
	for name, tt := range map[string]struct {
		want string // nothing if the model is served
		next func(x, s int64) (int64, error)
	}{
		"it does not run": {"the model does not run with that", func(x, s int64) (int64, error) {
			if x != s {
				return 0, errors.New("extents differ")
			}
			return s, nil
		}},
		"it stays empty":     {"", func(_, s int64) (int64, error) { return s, nil }},
		"it grows":           {"", func(x, s int64) (int64, error) { return x + s, nil }},
		"it is a window":     {"", func(x, s int64) (int64, error) { return min(x+s, 3), nil }},
		"it has the input's": {"", func(x, s int64) (int64, error) { return x, nil }},
		"it has the input's, which is long": {"", func(x, s int64) (int64, error) {
			if x+s < 5 {
				return 0, errors.New("too short")
			}
			return x, nil
		}},
		"it grows and is checked": {"", func(x, s int64) (int64, error) {
			if s == 0 {
				return 0, errors.New("too short")
			}
			return x + s, nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, tensors := range [][2]string{
				{"x:FP32[a,u] s:FP32[a,v]", "y:FP32[a,u] s_out:FP32[a,v]"},
				{"x:FP32[a,u] s:FP32[a,u]", "y:FP32[a,u] s_out:FP32[a,u]"},
				{"x:FP32[batch,u] s:FP32[batch,v]", "y:FP32[batch,u] s_out:FP32[batch,v]"},
				{"x:FP32[batch,u] s:FP32[batch,u]", "y:FP32[batch,u] s_out:FP32[batch,u]"},
			} {
				t.Run(tensors[0], func(t *testing.T) { testStateBegins(t, tensors, tt.want, tt.next) })
			}
		})
	}
}

// testStateBegins loads a model with a state of the length that next says.
func testStateBegins(t *testing.T, tensors [2]string, want string, next func(x, s int64) (int64, error)) {
	r := runnertest.NewFile(t, tensors[0], tensors[1])
	r.Runs = func(sig *onnx.Signature, inputs, outputs []onnx.Tensor) error {
		length, err := next(inputs[0].Shape[1], inputs[1].Shape[1])
		if err != nil {
			return err
		}
		for i, extent := range []int64{inputs[0].Shape[1], length} {
			runnertest.Allocate(&outputs[i], inputs[0].Shape[0], extent)
		}
		return nil
	}
	cfg := recurrenceConfig("FP32", true)
	if strings.Contains(tensors[0], "[a,") {
		cfg.Parameters["batch_axes"] = config.Value{String: "* = 0"}
	}
	pl, _, err := proving(t, r, nil, cfg, config.VerifyInferred)
	if after, wrong := next(3, 0); want == "" {
		require.NoError(t, err)
		require.Equal(t, wrong == nil && after == 0, len(pl.Warnings) == 1 && strings.Contains(pl.Warnings[0], `state "s" starts empty along axis 1`), "%v", pl.Warnings)
		return
	}
	require.ErrorContains(t, err, `state "s" would start empty along axis 1`)
	require.ErrorContains(t, err, want)
	require.ErrorContains(t, err, `initial_states, for example parameters { key: 'initial_states' value { string_value: 's = 0[1,1]' } }`)
	cfg.Parameters["initial_states"] = config.Value{String: "s = 0[1,1]"}
	_, _, err = proving(t, r, nil, cfg, config.VerifyInferred)
	require.NoError(t, err)
}

// TestStatesOfOneExtent: where the model runs with just one extent of its states, the refusal of
// states that would start empty has it, for all of them and next to what was set before.
func TestStatesOfOneExtent(t *testing.T) {
	for _, only := range []int64{10, 24, 480} {
		for _, batch := range []string{"batch", "a"} {
			open := "FP32[" + batch + ",?]"
			r := runnertest.NewFile(t, "x:"+open+" s1:"+open+" s2:"+open+" s3:"+open, "y:"+open+" s1_out:"+open+" s2_out:"+open+" s3_out:"+open)
			r.Runs = func(sig *onnx.Signature, inputs, outputs []onnx.Tensor) error {
				for i := range outputs {
					if i > 0 && inputs[i].Shape[1] != only || inputs[i].Shape[0] != inputs[0].Shape[0] {
						return errors.New("extents differ")
					}
					runnertest.Allocate(&outputs[i], inputs[i].Shape...)
					copy(outputs[i].Data.Bytes, inputs[i].Data.Bytes)
				}
				return nil
			}
			cfg := recurrenceConfig("FP32", true)
			if batch == "a" {
				cfg.Parameters["batch_axes"] = config.Value{String: "* = 0"}
			}
			cfg.Parameters["initial_states"] = config.Value{String: fmt.Sprintf("s2 = 0.5[1,%d]", only)}
			_, _, err := proving(t, r, nil, cfg, config.VerifyInferred)
			want := fmt.Sprintf("s2 = 0.5[1,%d]; s1 = 0[1,%d]; s3 = 0[1,%d]", only, only, only)
			require.ErrorContains(t, err, "parameters { key: 'initial_states' value { string_value: '"+want+"' } }")
			cfg.Parameters["initial_states"] = config.Value{String: want}
			pl, proof, err := proving(t, r, nil, cfg, config.VerifyInferred)
			require.NoError(t, err)
			require.Empty(t, pl.Warnings)
			require.Empty(t, proof.Warning)
			require.Equal(t, 8, pl.MaxLanes)
		}
	}
}

// TestProofOfSlowModels: all runs of a plan together, those with states as they begin too, are
// within the time.
func TestProofOfSlowModels(t *testing.T) {
	const each = 700 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		r := runnertest.NewFile(t, "x:FP32[batch,u] s:FP32[batch,v]", "y:FP32[batch,u] s_out:FP32[batch,v]")
		r.Runs = func(sig *onnx.Signature, inputs, outputs []onnx.Tensor) error {
			time.Sleep(each)
			runnertest.Allocate(&outputs[0], inputs[0].Shape...)
			runnertest.Allocate(&outputs[1], inputs[1].Shape[0], inputs[0].Shape[1]+inputs[1].Shape[1])
			return nil
		}
		began := time.Now()
		_, _, err := proving(t, r, nil, recurrenceConfig("FP32", true), config.VerifyInferred)
		require.NoError(t, err)
		require.Less(t, time.Since(began), proofMost+each)
		require.Greater(t, time.Since(began), proofMost-each)
	})
}
