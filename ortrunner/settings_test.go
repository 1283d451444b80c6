package ortrunner

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	ort "github.com/yalue/onnxruntime_go"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnxfile"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/ortrunner/internal/sinktest"
	"tritonstateful/ortrunner/onnxtest"
)

// optimizable has an Identity, which level basic removes, a Transpose, which extended makes a
// part of the MatMul, and a Conv, whose layout all changes.
func optimizable() onnxtest.Model {
	dims := onnxtest.Dims("batch", 16, 4, 4)
	return onnxtest.Model{
		Inputs:       []onnxtest.Value{{Name: "x", Type: onnxtest.Float, Dims: dims}},
		Initializers: []onnxtest.Tensor{{Name: "w", Type: onnxtest.Float, Dims: []int64{16, 16, 1, 1}, Data: make([]float32, 256)}},
		Nodes: []onnxtest.Node{
			{Op: "Identity", Inputs: []string{"x"}, Outputs: []string{"same"}},
			{Op: "Transpose", Inputs: []string{"same"}, Outputs: []string{"turned"}, Attributes: []onnxtest.Attribute{{Name: "perm", Value: []int64{0, 1, 3, 2}}}},
			{Op: "MatMul", Inputs: []string{"turned", "same"}, Outputs: []string{"product"}},
			{Op: "Conv", Inputs: []string{"product", "w"}, Outputs: []string{"y"}},
		},
		Outputs: []onnxtest.Value{{Name: "y", Type: onnxtest.Float, Dims: dims}},
	}
}

// optimized returns the operators of the model as ONNX Runtime runs it.
func optimized(t *testing.T, o onnx.SessionOptions) map[string]int {
	t.Helper()
	testRuntime(t)
	path := filepath.Join(t.TempDir(), "optimized.onnx")
	options, err := newOptions(o, func(options *ort.SessionOptions) error { return options.SetOptimizedModelFilePath(path) })
	require.NoError(t, err)
	defer options.Destroy() //nolint:errcheck // fails only for options that do not exist
	session, err := newSession(optimizable().Write(t), options)
	require.NoError(t, err)
	newSharedSession(session, nil).leave()
	operators, _, err := onnxfile.Read(path)
	require.NoError(t, err)
	return operators
}

// TestOptimizationLevels: each level does what it is for, and no more.
func TestOptimizationLevels(t *testing.T) {
	levels := map[string]map[string]int{
		"disabled": {"Identity": 1, "Transpose": 1, "MatMul": 1, "Conv": 1},
		"basic":    {"Transpose": 1, "MatMul": 1, "Conv": 1},
		"extended": {"FusedMatMul": 1, "Conv": 1},
		"all":      {"FusedMatMul": 1, "ReorderInput": 1, "Conv": 1, "ReorderOutput": 1},
	}
	if runtime.GOARCH != "amd64" {
		delete(levels, "all") // the layout is that of the processor
	}
	for level, want := range levels {
		require.Equal(t, want, optimized(t, onnx.SessionOptions{Optimization: level}), level)
	}
}

// TestEntryHasEffect: an entry that is passed on reaches the session.
func TestEntryHasEffect(t *testing.T) {
	got := optimized(t, onnx.SessionOptions{Optimization: "basic", Session: []onnx.Setting{{Key: "optimization.disable_specified_optimizers", Value: "EliminateIdentity"}}})
	require.Equal(t, 1, got["Identity"])
}

// TestRefusedByASetting: the error of a model that a setting keeps from loading names it.
func TestRefusedByASetting(t *testing.T) {
	_, err := testRuntime(t).Open(onnx.SessionOptions{Path: accumulate(2).Write(t), Session: []onnx.Setting{{Key: "session.disable_cpu_ep_fallback", Value: "1"}}})
	require.ErrorContains(t, err, "look at what the parameters pass on: session.disable_cpu_ep_fallback = 1")
}

// TestWrongAffinities: what is wrong with the list of cores comes first, and no one is sent to
// look at the file.
func TestWrongAffinities(t *testing.T) {
	path := accumulate(2).Write(t)
	for _, list := range []string{"1", "1;1;1", "x;y", "0;0"} {
		_, err := testRuntime(t).Open(onnx.SessionOptions{Path: path, IntraOpThreads: 3, Session: []onnx.Setting{{Key: "session.intra_op_thread_affinities", Value: list}}})
		require.ErrorContains(t, err, "/model.onnx: parameter session.intra_op_thread_affinities: want the cores of each thread but the first", list)
		require.NotContains(t, err.Error(), "copy the whole file")
		require.NotContains(t, err.Error(), "if it is not the file")
		require.Equal(t, status.InvalidArg, status.CodeOf(err))
	}
}

// TestSharedAllocators: a process that shares no allocators serves a model with this setting
// all the same.
func TestSharedAllocators(t *testing.T) {
	r, err := testRuntime(t).Open(onnx.SessionOptions{Path: accumulate(2).Write(t), Session: []onnx.Setting{{Key: "session.use_env_allocators", Value: "1"}}})
	require.NoError(t, err)
	defer r.Close()
	run := r.(*runner)
	x, out := floats(t, run, tensor.Shape{1, 2}, 1, 2), leftOpen(run)
	require.NoError(t, run.Run([]onnx.Tensor{x, x}, out))
	require.Equal(t, []float32{4, 8}, elements[float32](t, out[0]))
}

// threads is how many there are in the process.
func threads(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	return len(all)
}

// TestThreads counts the threads that a session starts: the caller's is one of those for an
// operator.
func TestThreads(t *testing.T) {
	path := accumulate(2).Write(t)
	rt := testRuntime(t)
	for _, c := range []struct {
		options onnx.SessionOptions
		want    int
	}{
		{onnx.SessionOptions{IntraOpThreads: 1, InterOpThreads: 1}, 0},
		{onnx.SessionOptions{IntraOpThreads: 4, InterOpThreads: 1}, 3},
		{onnx.SessionOptions{IntraOpThreads: 1, InterOpThreads: 5}, 0},
		{onnx.SessionOptions{IntraOpThreads: 1, InterOpThreads: 5, Parallel: true}, 4},
		{onnx.SessionOptions{IntraOpThreads: 3, InterOpThreads: 5, Parallel: true}, 6},
	} {
		c.options.Path = path
		before := threads(t)
		r, err := rt.Open(c.options)
		require.NoError(t, err)
		got := threads(t) - before
		run := r.(*runner)
		x := floats(t, run, tensor.Shape{1, 2}, 1, 2)
		out := leftOpen(run)
		require.NoError(t, run.Run([]onnx.Tensor{x, x}, out))
		require.Equal(t, []float32{4, 8}, elements[float32](t, out[0]))
		r.Close()
		// The Go runtime may start a thread of its own at any time.
		require.InDelta(t, c.want, got, 1, "%+v", c.options)
	}
}

// large needs as much memory for one float as its shape says.
func large() onnxtest.Model {
	return onnxtest.Model{
		Inputs: []onnxtest.Value{{Name: "x", Type: onnxtest.Float, Dims: onnxtest.Dims("batch", 1)}, {Name: "shape", Type: onnxtest.Int64, Dims: onnxtest.Dims(2)}},
		Nodes: []onnxtest.Node{
			{Op: "Expand", Inputs: []string{"x", "shape"}, Outputs: []string{"wide"}},
			{Op: "ReduceMax", Inputs: []string{"wide"}, Outputs: []string{"y"}, Attributes: []onnxtest.Attribute{{Name: "axes", Value: []int64{1}}}},
		},
		Outputs: []onnxtest.Value{{Name: "y", Type: onnxtest.Float, Dims: onnxtest.Dims("batch", 1)}},
	}
}

// TestArena: memory of a run stays in the arena, unless there is none or it is to shrink.
func TestArena(t *testing.T) {
	path := large().Write(t)
	rt := testRuntime(t)
	for name, c := range map[string]struct {
		options onnx.SessionOptions
		kept    bool
	}{
		"arena":     {onnx.SessionOptions{}, true},
		"no arena":  {onnx.SessionOptions{NoArena: true}, false},
		"shrinkage": {onnx.SessionOptions{Run: []onnx.Setting{{Key: onnx.ArenaShrinkage, Value: "cpu:0"}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c.options.Path, c.options.IntraOpThreads, c.options.Optimization = path, 1, "disabled"
			opened, err := rt.Open(c.options)
			require.NoError(t, err)
			defer opened.Close()
			r := opened.(*runner)
			before := resident(t)
			for _, n := range []int64{1, 16 << 20} { // the arena's first region is never given back
				shape := tensorOf(t, r, tensor.Int64, tensor.Shape{2}, []int64{1, n})
				x := floats(t, r, tensor.Shape{1, 1}, 7)
				out := []onnx.Tensor{zeros(t, r, tensor.FP32, tensor.Shape{1, 1})} // else it would stay in the arena
				require.NoError(t, r.Run([]onnx.Tensor{x, shape}, out))
				require.Equal(t, []float32{7}, elements[float32](t, out[0]))
			}
			if grown := resident(t) - before; c.kept && !addressSanitizer {
				require.Greater(t, grown, int64(48<<20))
			} else if !addressSanitizer {
				require.Less(t, grown, int64(16<<20))
			}
		})
	}
}

// inChild runs a test again in a process of its own, whose environment variable tells it so.
func inChild(t *testing.T) (child bool) {
	t.Helper()
	const variable = "ORTRUNNER_TEST_CHILD"
	if os.Getenv(variable) == t.Name() {
		return true
	}
	library(t)
	again := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	again.Env = append(os.Environ(), variable+"="+t.Name())
	out, err := again.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: "+t.Name())
	return false
}

// TestReadBack: ONNX Runtime lists the options of a session in its log, and all that was
// asked for is among them.
func TestReadBack(t *testing.T) {
	if !inChild(t) { // the level of the log is that of the first Runtime of a process
		return
	}
	rt, err := New(Options{Library: library(t), LogLevel: 1, LogSink: sinktest.Address()})
	require.NoError(t, err)
	sinktest.Take()
	r, err := rt.Open(onnx.SessionOptions{
		Path: accumulate(2).Write(t), IntraOpThreads: 3, InterOpThreads: 2, Parallel: true, NoPattern: true, NoArena: true, Optimization: "extended",
		Session: []onnx.Setting{{Key: "session.disable_prepacking", Value: "1"}, {Key: "session.intra_op.allow_spinning", Value: "1"}},
	})
	require.NoError(t, err)
	r.Close()
	_, line, found := strings.Cut(sinktest.Take(), "Session Options {")
	require.True(t, found)
	line, _, _ = strings.Cut(line, "\n")
	for _, want := range []string{
		"execution_mode:1", "enable_mem_pattern:0", "enable_cpu_mem_arena:0", "graph_optimization_level:2",
		"intra_op_param:OrtThreadPoolParams { thread_pool_size: 3 ", "inter_op_param:OrtThreadPoolParams { thread_pool_size: 2 ",
		"session.disable_prepacking: 1", "session.intra_op.allow_spinning: 1", "session.inter_op.allow_spinning: 0",
	} {
		require.Contains(t, line, want)
	}
}

// TestGlobalThreads: with pools of the process, sessions start no threads of their own.
func TestGlobalThreads(t *testing.T) {
	if !inChild(t) {
		return
	}
	before := threads(t)
	rt, err := New(Options{Library: library(t), LogLevel: 3, Threads: &Threads{IntraOp: 6, InterOp: 4}})
	require.NoError(t, err)
	require.True(t, rt.SharesThreads())
	require.InDelta(t, 5+3, threads(t)-before, 2)
	before = threads(t)
	for i := range 3 {
		r, err := rt.Open(onnx.SessionOptions{Path: accumulate(2).Write(t), IntraOpThreads: 16, InterOpThreads: 16, Parallel: i == 2})
		require.NoError(t, err)
		t.Cleanup(r.Close)
		run := r.(*runner)
		x := floats(t, run, tensor.Shape{1, 2}, 1, 2)
		require.NoError(t, run.Run([]onnx.Tensor{x, x}, leftOpen(run)))
	}
	require.InDelta(t, 0, threads(t)-before, 2)
}

// headers is the folder of the vendor's header.
func headers(t *testing.T) string {
	t.Helper()
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/yalue/onnxruntime_go").Output()
	require.NoError(t, err, "the wrapper's module has the vendor's header")
	return strings.TrimSpace(string(module))
}

// fixture compiles a library from testdata.
func fixture(t *testing.T, source string, flags ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), strings.TrimSuffix(source, ".c")+".so")
	args := append([]string{"-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-I" + headers(t), "-o", path, filepath.Join("testdata", source)}, flags...)
	out, err := exec.Command(compiler(), args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// twice has an operator that only testdata/customop.c implements.
func twice() onnxtest.Model {
	m := accumulate(2)
	m.Nodes[1] = onnxtest.Node{Op: "Twice", Domain: "com.example", Inputs: []string{"new"}, Outputs: []string{"y"}}
	return m
}

// TestCustomOperators loads a library of operators, for several sessions.
func TestCustomOperators(t *testing.T) {
	rt, path := testRuntime(t), twice().Write(t)
	operators := fixture(t, "customop.c")
	for range 2 {
		opened, err := rt.Open(onnx.SessionOptions{Path: path, IntraOpThreads: 1, Operators: []string{operators}})
		require.NoError(t, err)
		defer opened.Close()
		r := opened.(*runner)
		out := leftOpen(r)
		require.NoError(t, r.Run([]onnx.Tensor{floats(t, r, tensor.Shape{1, 2}, 1, 2), floats(t, r, tensor.Shape{1, 2}, 10, 20)}, out))
		require.Equal(t, []float32{22, 44}, elements[float32](t, out[0]))
	}
	_, err := rt.Open(onnx.SessionOptions{Path: path})
	require.ErrorContains(t, err, "model_operations { op_library_filename }")
	_, err = rt.Open(onnx.SessionOptions{Path: path, Operators: []string{"/nowhere/ops.so"}})
	require.ErrorContains(t, err, "library /nowhere/ops.so, from op_library_filename")
	plain := filepath.Join(t.TempDir(), "plain.so")
	compile(t, plain, `int answer(void) { return 42; }`)
	_, err = rt.Open(onnx.SessionOptions{Path: path, Operators: []string{plain}})
	require.ErrorContains(t, err, "exports RegisterCustomOps")
}

// TestPlugin adds execution providers of libraries to sessions.
func TestPlugin(t *testing.T) {
	rt, path := testRuntime(t), accumulate(2).Write(t)
	open := func(p onnx.Plugin) error {
		opened, err := rt.Open(onnx.SessionOptions{Path: path, IntraOpThreads: 1, Plugin: &p})
		if err != nil {
			return err
		}
		defer opened.Close()
		r := opened.(*runner)
		x, out := floats(t, r, tensor.Shape{1, 2}, 1, 2), leftOpen(r)
		require.NoError(t, r.Run([]onnx.Tensor{x, x}, out))
		require.Equal(t, []float32{4, 8}, elements[float32](t, out[0]))
		return nil
	}
	none, one, two := fixture(t, "plugin.c", "-DPROVIDERS=0"), fixture(t, "plugin.c", "-DPROVIDERS=1"), fixture(t, "plugin.c", "-DPROVIDERS=2")
	trace := filepath.Join(t.TempDir(), "trace")
	options := []onnx.Setting{{Key: "trace", Value: trace}}
	require.NoError(t, open(onnx.Plugin{Library: one, Options: options}))
	require.NoError(t, open(onnx.Plugin{Library: one, Name: "FirstProvider", Options: options}))
	require.NoError(t, open(onnx.Plugin{Library: two, Name: "SecondProvider", Options: options}))
	asked, err := os.ReadFile(trace)
	require.NoError(t, err)
	require.Contains(t, string(asked), "FirstProvider was asked\n")
	require.Contains(t, string(asked), "SecondProvider was asked\n")
	for i, c := range []struct {
		plugin onnx.Plugin
		want   string
	}{
		{onnx.Plugin{Library: none}, "it offers no device on this machine"},
		{onnx.Plugin{Library: none}, "it offers no device on this machine"}, // loaded once
		{onnx.Plugin{Library: two}, "set the parameter ort_ep_name to one of FirstProvider, SecondProvider"},
		{onnx.Plugin{Library: two, Name: "Third"}, "are FirstProvider, SecondProvider"},
		{onnx.Plugin{Library: "/nowhere/ep.so"}, "execution provider library /nowhere/ep.so"},
		{onnx.Plugin{Library: fixture(t, "customop.c")}, "CreateEpFactories"},
	} {
		require.ErrorContains(t, open(c.plugin), c.want, fmt.Sprint(i))
	}
}

// TestPluginAfterAFailure: a library whose devices could not be listed is registered again.
func TestPluginAfterAFailure(t *testing.T) {
	testRuntime(t)
	library, calls := fixture(t, "plugin.c", "-DPROVIDERS=1"), 0
	allDevices = func() ([]ort.EpDevice, error) {
		if calls++; calls == 2 {
			return nil, errors.New("injected")
		}
		return ort.GetEpDevices()
	}
	defer func() { allDevices = ort.GetEpDevices }()
	_, err := devicesOf(library)
	require.EqualError(t, err, "injected")
	for range 2 {
		devices, err := devicesOf(library)
		require.NoError(t, err)
		require.Len(t, devices, 1)
	}
	require.Equal(t, 4, calls)
}
