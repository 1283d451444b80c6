package cli

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/cli/offline"
	"tritonstateful/internal/cli/parity"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/ortrunner/onnxtest"
)

// faulty is a runner whose outputs a fault changes after each run.
type faulty struct {
	onnx.Runner
	runs  int
	fault func(run int, inputs, outputs []onnx.Tensor)
}

func (f *faulty) Run(inputs, outputs []onnx.Tensor) error {
	const warmUps = 2 // with one lane, and with all
	err := f.Runner.Run(inputs, outputs)
	if f.runs++; err == nil && f.runs > warmUps {
		f.fault(f.runs-warmUps, inputs, outputs)
	}
	return err
}

// bump adds 1 to the first number of an output.
func bump(out *onnx.Tensor) {
	copy(out.Data.Bytes, tensor.AppendFloat(nil, tensor.Float(out.Data.Bytes[:4], tensor.FP32)+1, tensor.FP32))
}

// unproved is a configuration with which the backend makes no trial runs: at load, it would find most of these faults itself.
var unproved = oldest + "max_batch_size: 8 input [{ name: \"x\" data_type: TYPE_FP32 dims: [ 4 ] }] output [{ name: \"y\" data_type: TYPE_FP32 dims: [ 4 ] }]\n" +
	parameter("verify", "never")

// The runners that a check opens, one after the other: of the instance that is compared, of the judge, and of the two instances
// of the comparison restored.
const (
	ofInstance = iota + 1
	ofJudge
	ofSaver
	ofSuccessor
)

// TestCheckFindsFaultsOfTheBackend: each comparison fails if what it looks at is wrong, also if no other one does. The faults
// are those that a backend could have: they are in what its own runners compute, and not in the judge's.
func TestCheckFindsFaultsOfTheBackend(t *testing.T) {
	const lanes, steps = 4, 6
	alone := lanes * steps // runs of the comparison one by one; those after it have a run for each step
	same, different, failed := parity.SameBits, parity.Different, parity.Failed
	stores := t.TempDir()
	t.Setenv("TMPDIR", stores)
	for name, c := range map[string]struct {
		runner int
		fault  func(run int, inputs, outputs []onnx.Tensor)
		opened func(t *testing.T) // before that runner opens
		want   []string           // of one by one, batched, permuted, restarted, restored
	}{
		"none": {ofInstance, nil, nil, []string{same, same, same, same, same}},
		"a request alone is answered wrongly": {ofInstance, func(run int, _, outputs []onnx.Tensor) {
			if run == alone {
				bump(&outputs[0])
			}
		}, nil, []string{different, same, same, same, same}},
		"lanes leak": {ofInstance, func(_ int, inputs, outputs []onnx.Tensor) {
			if n := len(outputs[1].Data.Bytes); inputs[0].Shape[0] > 1 { // the state of the last lane is that of the first
				copy(outputs[1].Data.Bytes[n-16:], outputs[1].Data.Bytes[:16])
			}
		}, nil, []string{same, different, different, different, same}},
		"batches that are not full are answered wrongly": {ofInstance, func(_ int, inputs, outputs []onnx.Tensor) {
			if n := inputs[0].Shape[0]; n > 1 && n < lanes {
				bump(&outputs[0])
			}
		}, nil, []string{same, same, different, same, same}},
		"START does not reset after an END": {ofInstance, func(run int, _, outputs []onnx.Tensor) {
			if run == alone+steps+steps+2+steps+steps/2+1 { // the third START of the comparison restarted
				bump(&outputs[0])
			}
		}, nil, []string{same, same, same, different, same}},
		"the answer is no number": {ofInstance, func(run int, _, outputs []onnx.Tensor) {
			if run == 1 {
				copy(outputs[0].Data.Bytes, tensor.AppendFloat(nil, math.NaN(), tensor.FP32))
			}
		}, nil, []string{different, same, same, same, same}},
		"what is saved is wrong": {ofSaver, func(run int, _, outputs []onnx.Tensor) {
			if run == steps/2 {
				bump(&outputs[1])
			}
		}, nil, []string{same, same, same, same, different}},
		"the successor is wrong": {ofSuccessor, func(run int, _, outputs []onnx.Tensor) {
			if run == 1 {
				bump(&outputs[0])
			}
		}, nil, []string{same, same, same, same, different}},
		"saved values are damaged": {ofSuccessor, nil, func(t *testing.T) {
			changeStored(t, stores, func(path string, content []byte) error {
				content[len(content)/2] ^= 1
				return os.WriteFile(path, content, 0o600)
			})
		}, []string{same, same, same, same, failed}},
		"saved values are lost": {ofSuccessor, nil, func(t *testing.T) {
			changeStored(t, stores, func(path string, _ []byte) error { return os.Remove(path) })
		}, []string{same, same, same, same, failed}},
	} {
		t.Run(name, func(t *testing.T) {
			model, open := servedModel(t, sums())
			opened := 0
			report, err := parity.Check(model, func(o onnx.SessionOptions) (onnx.Runner, error) {
				runner, err := open(o)
				if opened++; opened != c.runner || err != nil {
					return runner, err
				}
				if c.opened != nil {
					c.opened(t)
				}
				if c.fault == nil {
					return runner, nil
				}
				return &faulty{Runner: runner, fault: c.fault}, nil
			}, parity.Options{Lanes: lanes, Steps: steps})
			require.NoError(t, err)
			require.Equal(t, ofSuccessor, opened)
			var got []string
			for _, one := range report.Results {
				got = append(got, one.Verdict)
				require.Equal(t, one.Verdict != same, one.Where != "", "where it is")
			}
			require.Equal(t, c.want, got)
			require.Equal(t, name == "none", report.Good())
			require.Empty(t, report.Notes)
			left, err := filepath.Glob(filepath.Join(stores, "tritonstateful-*"))
			require.NoError(t, err)
			require.Empty(t, left, "no files are left")
		})
	}
}

// servedModel is a model of a repository, and the real ONNX Runtime.
func servedModel(t *testing.T, m onnxtest.Model) (*offline.Model, onnx.OpenRunner) {
	t.Helper()
	c := &command{library: withRuntime(t)[1]}
	runtime, err := c.runtime()
	require.NoError(t, err)
	model, err := c.served(repository(t, "m", unproved, m))
	require.NoError(t, err)
	return model, runtime.Open
}

// changeStored changes what is saved below a folder; something must be.
func changeStored(t *testing.T, folder string, change func(path string, content []byte) error) {
	t.Helper()
	changed := 0
	require.NoError(t, filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil || len(content) < 100 {
			return err
		}
		changed++
		return change(path, content)
	}))
	require.NotZero(t, changed)
}

// TestCheckSaysWhatItCannotShow: models for which a wrong server would give the same answers, and one that has no right ones.
func TestCheckSaysWhatItCannotShow(t *testing.T) {
	forgetful := sums()
	forgetful.Nodes[1] = onnxtest.Node{Op: "Identity", Inputs: []string{"x"}, Outputs: []string{"y"}}
	constant := sums()
	constant.Nodes[1] = onnxtest.Node{Op: "Sub", Inputs: []string{"next_sum", "next_sum"}, Outputs: []string{"y"}}
	random := sums()
	random.Nodes = append([]onnxtest.Node{{Op: "RandomNormalLike", Inputs: []string{"x"}, Outputs: []string{"noise"}}}, random.Nodes...)
	random.Nodes[2] = onnxtest.Node{Op: "Add", Inputs: []string{"next_sum", "noise"}, Outputs: []string{"y"}}
	for name, c := range map[string]struct {
		model onnxtest.Model
		code  int
		notes []string
	}{
		"sums":      {sums(), exitFine, nil},
		"forgetful": {forgetful, exitFine, []string{"whether states are kept"}},
		"constant":  {constant, exitFine, []string{"whether states are kept", "whether sequences are mixed up"}},
		"random":    {random, exitFound, []string{"not deterministic"}},
	} {
		t.Run(name, func(t *testing.T) {
			folder := repository(t, name, unproved, c.model)
			code, r := check(t, folder)
			require.Equal(t, c.code, code, r.Results)
			require.Len(t, r.Notes, len(c.notes), r.Notes)
			for i, note := range c.notes {
				require.Contains(t, r.Notes[i], note)
			}
			_, out, _ := run(t, withRuntime(t, "check", folder)...)
			for _, note := range r.Notes {
				require.Contains(t, out, "note: "+note)
			}
		})
	}
}
