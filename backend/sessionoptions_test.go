package backend

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnx/runnertest"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// TestSessionOptions: what a configuration of Triton's onnxruntime backend says reaches the
// session of an instance.
func TestSessionOptions(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(folder, "3"), 0o755))
	for _, name := range []string{"3/near.so", "far.so"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), nil, 0o644))
	}
	set := newSetup(param("intra_op_thread_count", "2"), param("execution_mode", "1"), param("inter_op_thread_count", "3"),
		param("session.disable_prepacking", "1"), param("memory.enable_memory_arena_shrinkage", "cpu:0"),
		param("enable_mem_pattern", "0"), param("ort_ep_library", "far.so"))
	set.config.ModelOperations.OpLibraryFilename = []string{"near.so", "far.so", "/opt/ops.so", "elsewhere.so"}
	set.config.Optimization.Graph = &config.Graph{Level: 1}
	var opened []onnx.SessionOptions
	log := newRecorder(slog.LevelInfo)
	model, err := NewModel(ModelInfo{Name: "model", Version: 3, Directory: folder, Config: set.json()}, Server{
		Log: slog.New(log), Clock: newServer(t).in.model.server.Clock,
		Open: func(o onnx.SessionOptions) (onnx.Runner, error) {
			opened = append(opened, o)
			return newAccumulator(&statebuffer.Heap{}, accumulate()), nil
		},
	})
	require.NoError(t, err)
	in, err := model.NewInstance(InstanceInfo{Name: "model_0", Kind: "cpu"})
	require.NoError(t, err)
	in.Close()
	libraries := []string{filepath.Join(folder, "3", "near.so"), filepath.Join(folder, "far.so"), "/opt/ops.so", "elsewhere.so"}
	require.Equal(t, onnx.SessionOptions{
		Path: filepath.Join(folder, "3", "model.onnx"), Name: "model_0", IntraOpThreads: 2, InterOpThreads: 3, Parallel: true, NoPattern: true, Optimization: "extended",
		Session:   []onnx.Setting{{Key: "session.disable_prepacking", Value: "1"}},
		Run:       []onnx.Setting{{Key: "memory.enable_memory_arena_shrinkage", Value: "cpu:0"}},
		Operators: libraries, Plugin: &onnx.Plugin{Library: filepath.Join(folder, "far.so")},
	}, opened[0])
	settings := strings.Join(log.having("settings"), "\n")
	for _, want := range []string{"graph_optimization=extended", "intra_op_thread_count=2", "session.disable_prepacking=1", "memory.enable_memory_arena_shrinkage=cpu:0"} {
		require.Contains(t, settings, want)
	}
	for _, more := range opened[1:] { // to look at the model
		require.Equal(t, libraries, more.Operators)
		require.Nil(t, more.Plugin)
	}
}

// TestArenasOfAnInstance: ONNX Runtime fails each run that is to shrink an arena that the
// session has not, so a load does.
func TestArenasOfAnInstance(t *testing.T) {
	shrinks := func(arenas string) func(*setup) { return param(onnx.ArenaShrinkage, arenas) }
	newServer(t, shrinks("cpu:0"))
	for _, arenas := range []string{"gpu:0", "cpu:1", "cpu:0;gpu:0"} {
		_, err := load(t, shrinks(arenas))
		require.ErrorContains(t, err, `parameter memory.enable_memory_arena_shrinkage is "`+arenas+`": the instance has no arena `)
		require.ErrorContains(t, err, "want cpu:0")
		require.Equal(t, status.InvalidArg, status.CodeOf(err))
	}
	_, l := loadOnGPU(t, shrinks("cpu:0;gpu:3"))
	require.Len(t, l.opened, 2)
	for _, o := range l.opened {
		require.Equal(t, o.Provider == onnx.CPU, len(o.Run) == 0, "what only looks at the model has no arena on a GPU")
	}
	_, err := newGPULoad(t).try(t, shrinks("gpu:1"))
	require.ErrorContains(t, err, "the instance has no arena gpu:1: want cpu:0 or gpu:3")
}

// TestNamelessLibrary: an empty name would be that of the version's folder.
func TestNamelessLibrary(t *testing.T) {
	_, err := load(t, func(s *setup) { s.config.ModelOperations.OpLibraryFilename = []string{"/opt/ops.so", ""} })
	require.ErrorContains(t, err, "model_operations { op_library_filename } has an empty name: want the path of a shared library")
}

// TestOneLoadReportsAll: faults of parameters and of the field optimization come together.
func TestOneLoadReportsAll(t *testing.T) {
	_, err := load(t, param("session.no_such", "1"), param("execution_mode", "2"), param("graph_optimization", "all"), func(s *setup) { s.config.Optimization.Graph = &config.Graph{Level: 2} })
	for _, want := range []string{"parameter session.no_such", "parameter execution_mode", "graph.level is 2"} {
		require.ErrorContains(t, err, want)
	}
}

// TestNoBatchWarnsOnce: requests with a batch of 2, which max_batch_size allows, are refused
// then. A request of a sequence has a batch of 1.
func TestNoBatchWarnsOnce(t *testing.T) {
	const line = "max_batch_size is 8, but requests run one at a time"
	for _, tt := range []struct {
		x     string
		batch int
		want  int
	}{{"FP32[1,4]", 8, 1}, {"FP32[1,4]", 1, 0}, {"FP32[batch,4]", 8, 0}} {
		log := newRecorder(slog.LevelInfo)
		file := runnertest.NewFile(t, "x:"+tt.x, "y:"+tt.x)
		file.Runs = func(_ *onnx.Signature, inputs, outputs []onnx.Tensor) error {
			runnertest.Allocate(&outputs[0], inputs[0].Shape...)
			copy(outputs[0].Data.Bytes, inputs[0].Data.Bytes)
			return nil
		}
		text := fmt.Sprintf(`{"max_batch_size": %d, "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [4]}], "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [4]}]}`, tt.batch)
		model, err := NewModel(ModelInfo{Name: "model", Config: []byte(text)}, Server{
			Log: slog.New(log), Clock: newServer(t).in.model.server.Clock,
			Open: func(onnx.SessionOptions) (onnx.Runner, error) { return file, nil },
		})
		require.NoError(t, err)
		for _, name := range []string{"model_0", "model_1"} {
			in, err := model.NewInstance(InstanceInfo{Name: name, Kind: "cpu"})
			require.NoError(t, err)
			defer in.Close()
		}
		require.Len(t, log.having(line), tt.want, "%+v", tt)
	}
}

// TestPluginOnGPU: states of instances on a GPU are where a plugin does not find them.
func TestPluginOnGPU(t *testing.T) {
	l := newGPULoad(t)
	_, err := l.try(t, param("ort_ep_library", "/opt/ep.so"))
	require.ErrorContains(t, err, "parameter ort_ep_library")
	require.ErrorContains(t, err, "KIND_CPU")
}

// TestGlobalThreadsWarn: threads of a model's own are not to be had then.
func TestGlobalThreadsWarn(t *testing.T) {
	log := newRecorder(slog.LevelInfo)
	_, err := NewModel(ModelInfo{Name: "model", Config: newSetup(param("intra_op_thread_count", "4"), param("inter_op_threads", "1")).json()}, Server{Log: slog.New(log), GlobalThreads: true})
	require.NoError(t, err)
	require.Len(t, log.having("enable-global-threadpool"), 2)
}

// capable loads instances on two GPUs with the given compute capabilities, and returns the
// files that they were loaded from.
func capable(t *testing.T, second *accumulator, capabilities ...string) (files []string, err error) {
	t.Helper()
	set := newSetup(param("ort_ep", "cuda"), param("verify", "never"))
	set.config.CCModelFilenames = map[string]string{"8.0": "ampere.onnx", "9.0": "../hopper.onnx"}
	cards := []onnx.Runner{&gpu{Runner: newAccumulator(&card{}, accumulate()), t: t}, &gpu{Runner: second, t: t}}
	model, err := NewModel(ModelInfo{Name: "model", Version: 3, Directory: "/models/model", Config: set.json()}, Server{
		Log: slog.New(newRecorder(slog.LevelInfo)), Clock: newServer(t).in.model.server.Clock,
		Open: func(o onnx.SessionOptions) (onnx.Runner, error) {
			files = append(files, o.Path)
			return cards[o.Device], nil
		},
		Capability: func(device int) (string, error) {
			if capabilities[device] == "" {
				return "", errors.New("no driver")
			}
			return capabilities[device], nil
		},
	})
	require.NoError(t, err)
	for device := range capabilities {
		in, err := model.NewInstance(InstanceInfo{Name: "model_0", Kind: "gpu", Device: device})
		if err != nil {
			return files, err
		}
		in.Close()
	}
	return files, nil
}

// TestFilesByCapability: cc_model_filenames chooses the file of each GPU, and the files must
// fit one plan.
func TestFilesByCapability(t *testing.T) {
	files, err := capable(t, newAccumulator(&card{}, accumulate()), "8.0", "7.5")
	require.NoError(t, err)
	require.Equal(t, []string{"/models/model/3/ampere.onnx", "/models/model/3/model.onnx"}, files)
	_, err = capable(t, newAccumulator(&card{}, accumulate()), "9.0")
	require.ErrorContains(t, err, `the file for 9.0 is "../hopper.onnx"`)
	_, err = capable(t, newAccumulator(&card{}, accumulate()), "")
	require.ErrorContains(t, err, "no driver")
	other := accumulate()
	other.dtype = tensor.FP64
	_, err = capable(t, newAccumulator(&card{}, other), "7.5", "8.0")
	require.ErrorContains(t, err, "the inputs and outputs of ampere.onnx")
}
