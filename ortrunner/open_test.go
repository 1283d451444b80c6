package ortrunner

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/ortrunner/onnxtest"
)

// TestBadFiles opens files that are not models: the error says which file, by the names
// that the user sees, and why.
func TestBadFiles(t *testing.T) {
	good := accumulate(2).Marshal()
	broken := accumulate(2)
	broken.Nodes[0].Op = "NoSuchOperator"
	foreign := accumulate(2)
	foreign.Nodes[0].Domain = "com.example"
	late := accumulate(2)
	late.Opset = 99
	version := slices.Clone(good)
	version[1] = 120 // ir_version
	const cutOff = "compare its size"
	for name, c := range map[string]struct {
		data []byte // nil: no file
		code status.Code
		want string
	}{
		"missing":          {nil, status.NotFound, "model file 1/model.onnx does not exist"},
		"empty":            {[]byte{}, status.InvalidArg, "1/model.onnx is empty"},
		"web page":         {[]byte("\n<html>404</html>"), status.InvalidArg, "it is a web page"},
		"pointer":          {[]byte("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"), status.InvalidArg, "it is a Git LFS pointer, not the model"},
		"archive":          {[]byte("PK\x03\x04archive/data.pkl"), status.InvalidArg, "it is a ZIP archive"},
		"truncated":        {good[:len(good)-9], status.InvalidArg, cutOff},
		"half":             {good[:len(good)/2], status.InvalidArg, cutOff},
		"without a graph":  {good[:12], status.InvalidArg, "it is truncated"},
		"unknown operator": {broken.Marshal(), status.InvalidArg, "No Op registered for NoSuchOperator"},
		"custom operator":  {foreign.Marshal(), status.InvalidArg, "com.example:Add(-1) is not a registered"},
		"late opset":       {late.Marshal(), status.InvalidArg, "export it for an opset"},
		"late IR":          {version, status.InvalidArg, "max supported IR version: 13"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "1", "model.onnx")
			require.NoError(t, os.Mkdir(filepath.Dir(path), 0o755))
			if c.data != nil {
				require.NoError(t, os.WriteFile(path, c.data, 0o644))
			}
			_, err := testRuntime(t).Open(onnx.SessionOptions{Path: path})
			require.ErrorContains(t, err, "model file 1/model.onnx")
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), path)
			require.Equal(t, c.code, status.CodeOf(err))
		})
	}
	t.Run("folder", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "1", "model.onnx")
		require.NoError(t, os.MkdirAll(filepath.Join(path, "model.onnx"), 0o755))
		_, err := testRuntime(t).Open(onnx.SessionOptions{Path: path})
		require.ErrorContains(t, err, "model file 1/model.onnx/model.onnx is a folder")
		require.NoError(t, os.Remove(filepath.Join(path, "model.onnx")))
		_, err = testRuntime(t).Open(onnx.SessionOptions{Path: path})
		require.ErrorContains(t, err, "model file 1/model.onnx/model.onnx does not exist")
	})
}

// TestUnreadableModel: the remedy is not that of a broken file.
func TestUnreadableModel(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "model.onnx")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	_, err := testRuntime(t).Open(onnx.SessionOptions{Path: pipe})
	require.ErrorContains(t, err, "is no regular file")
	if os.Geteuid() == 0 {
		t.Skip("root reads every file")
	}
	path := filepath.Join(t.TempDir(), "model.onnx")
	require.NoError(t, os.WriteFile(path, accumulate(2).Marshal(), 0))
	_, err = testRuntime(t).Open(onnx.SessionOptions{Path: path})
	require.ErrorContains(t, err, "cannot be read: permission denied: let the user read it")
}

// TestModelInAFolder opens 1/model.onnx/model.onnx, which is where Triton's
// documentation puts a model with external data.
func TestModelInAFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "1", "model.onnx")
	require.NoError(t, os.MkdirAll(path, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(path, "model.onnx"), accumulate(2).Marshal(), 0o644))
	r, err := testRuntime(t).Open(onnx.SessionOptions{Path: path})
	require.NoError(t, err)
	defer r.Close()
	require.Equal(t, map[string]int{"Add": 2}, r.Signature().Operators)
}

// TestOptions opens a model with every kind of option.
func TestOptions(t *testing.T) {
	path := accumulate(2).Write(t)
	for name, c := range map[string]struct {
		options onnx.SessionOptions
		code    status.Code
		want    string
	}{
		"threads":    {options: onnx.SessionOptions{IntraOpThreads: 2, Name: "m"}},
		"disabled":   {options: onnx.SessionOptions{Optimization: "disabled"}},
		"basic":      {options: onnx.SessionOptions{Optimization: "basic"}},
		"extended":   {options: onnx.SessionOptions{Optimization: "extended"}},
		"all":        {options: onnx.SessionOptions{Optimization: "all"}},
		"fast":       {onnx.SessionOptions{Optimization: "fast"}, status.InvalidArg, `graph optimization: "fast" is unknown`},
		"no threads": {onnx.SessionOptions{IntraOpThreads: -1}, status.InvalidArg, "threads: -1 for one operator"},
	} {
		t.Run(name, func(t *testing.T) {
			c.options.Path = path
			r, err := testRuntime(t).Open(c.options)
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				require.Equal(t, c.code, status.CodeOf(err))
				return
			}
			require.NoError(t, err)
			r.Close()
		})
	}
}

// TestParallel opens, runs and closes models from many goroutines at once.
func TestParallel(t *testing.T) {
	path := accumulate(2).Write(t)
	rt := testRuntime(t)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for range 5 {
				opened, err := rt.Open(onnx.SessionOptions{Path: path, IntraOpThreads: 1})
				if err != nil {
					t.Error(err)
					return
				}
				r := opened.(*runner)
				x := floats(t, r, tensor.Shape{1, 2}, float32(i), 1)
				out := leftOpen(r)
				if err := r.Run([]onnx.Tensor{x, x}, out); err != nil {
					t.Error(err)
				} else if got := elements[float32](t, out[1]); got[0] != float32(2*i) {
					t.Errorf("model %d gave %v", i, got)
				}
				r.Close()
			}
		})
	}
	group.Wait()
}

// TestNoLeak opens and closes a model many times; memory stops growing. C leaks
// are also reported at exit with go test -asan.
func TestNoLeak(t *testing.T) {
	if testing.Short() {
		t.Skip("opens hundreds of sessions: left out by -short")
	}
	path := stringIdentity().Write(t)
	bigPath := accumulate(100_000).Write(t)
	data := serialize(string(make([]byte, 100_000)), "b")
	rt := testRuntime(t)
	cycle := func() {
		words, err := rt.Open(onnx.SessionOptions{Path: path, IntraOpThreads: 1})
		require.NoError(t, err)
		r := words.(*runner)
		x := onnx.Tensor{Data: blockOf(t, r, data), DType: tensor.Bytes, Shape: tensor.Shape{1, 2}}
		require.NoError(t, r.Run([]onnx.Tensor{x}, leftOpen(r)))
		r.Close()

		sums, err := rt.Open(onnx.SessionOptions{Path: bigPath, IntraOpThreads: 1})
		require.NoError(t, err)
		r = sums.(*runner)
		y := zeros(t, r, tensor.FP32, tensor.Shape{1, 100_000})
		require.NoError(t, r.Run([]onnx.Tensor{y, y}, leftOpen(r)))
		r.Close()
	}
	for range 50 {
		cycle()
	}
	before := resident(t)
	for range 150 {
		cycle()
	}
	if !addressSanitizer {
		require.Less(t, resident(t)-before, int64(8<<20), "0.5 MB of tensors in each of 150 cycles")
	}
}

// TestTrim: the memory of a model goes back to the system after its last runner was closed,
// and where ONNX Runtime refused it after it had read the weights. They are many blocks here,
// each too small for the C library to map it by itself.
func TestTrim(t *testing.T) {
	if addressSanitizer {
		t.Skip("its malloc keeps what is freed")
	}
	const blocks, elements = 1200, 16 << 10 // 64 KiB each
	model := onnxtest.Model{
		Inputs:  []onnxtest.Value{{Name: "x0", Type: onnxtest.Float, Dims: onnxtest.Dims("batch", elements)}},
		Outputs: []onnxtest.Value{{Name: fmt.Sprintf("x%d", blocks), Type: onnxtest.Float, Dims: onnxtest.Dims("batch", elements)}},
	}
	for i := range blocks {
		weight, data := fmt.Sprintf("w%d", i), make([]float32, elements)
		data[0] = float32(i) // equal ones would be merged
		model.Initializers = append(model.Initializers, onnxtest.Tensor{Name: weight, Type: onnxtest.Float, Dims: []int64{elements}, Data: data})
		model.Nodes = append(model.Nodes, onnxtest.Node{Op: "Mul", Inputs: []string{fmt.Sprintf("x%d", i), weight}, Outputs: []string{fmt.Sprintf("x%d", i+1)}})
	}
	rt, path := testRuntime(t), model.Write(t)
	model.Nodes[blocks-1].Op = "NoSuchOperator"
	refused := model.Write(t)
	model = onnxtest.Model{}
	debug.FreeOSMemory()
	before := resident(t)

	first, err := rt.Open(onnx.SessionOptions{Path: path, IntraOpThreads: 1})
	require.NoError(t, err)
	second, err := first.(onnx.Sharer).Share()
	require.NoError(t, err)
	first.Close()
	require.Greater(t, resident(t)-before, int64(60<<20), "the other runner has the weights")
	second.Close()
	rt.Trim()
	debug.FreeOSMemory()
	require.Less(t, resident(t)-before, int64(30<<20), "after the last runner")

	_, err = rt.Open(onnx.SessionOptions{Path: refused, IntraOpThreads: 1})
	require.ErrorContains(t, err, "NoSuchOperator")
	rt.Trim()
	debug.FreeOSMemory()
	require.Less(t, resident(t)-before, int64(30<<20), "after a load that failed")
}

// TestOddPath opens a model whose path has spaces and letters beyond ASCII.
func TestOddPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mödel one", "α b.onnx")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, accumulate(1).Marshal(), 0o644))
	r, err := testRuntime(t).Open(onnx.SessionOptions{Path: path})
	require.NoError(t, err)
	r.Close()
}

var _ onnx.OpenRunner = (*Runtime)(nil).Open

// TestRemedyForWeights has what ONNX Runtime says of a model whose external data is not
// there.
func TestRemedyForWeights(t *testing.T) {
	refusal := status.Errorf(status.Internal, `validation failed for initializer: w. Error: External data path does not exist: "1/model.onnx.data"`)
	err := withRemedy("", refusal)
	require.ErrorContains(t, err, `"1/model.onnx.data": copy the file`)
	require.Equal(t, status.InvalidArg, status.CodeOf(err))
}
