package ortrunner

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/onnx"
	"tritonstateful/ortrunner/onnxtest"
)

// hostileFolder is where the child finds the file to write its cases to.
const hostileFolder = "ORTRUNNER_HOSTILE_FOLDER"

// TestHostileFiles opens files that are cut off, changed in places, or noise. ONNX
// Runtime must refuse them or load them; it does so in a process of its own, so
// that a crash or a hang fails this test alone and names the case.
func TestHostileFiles(t *testing.T) {
	library(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestHostileFilesChild$", "-test.v")
	child.Env = append(os.Environ(), hostileFolder+"="+t.TempDir())
	output, err := child.CombinedOutput()
	require.NoError(t, err, "the last case is %s", output[max(0, bytes.LastIndex(output, []byte("case ")), len(output)-4000):])
	require.Contains(t, string(output), "refused ")
}

// TestHostileFilesChild is the other process.
func TestHostileFilesChild(t *testing.T) {
	folder := os.Getenv(hostileFolder)
	if folder == "" {
		t.Skip("runs as a child of TestHostileFiles only")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	models := [][]byte{accumulate(3).Marshal(), stringIdentity().Marshal(), shapes().Marshal()}
	rt := testRuntime(t)
	opened, refused := 0, 0
	path := filepath.Join(folder, "model.onnx")
	try := func(name string, data []byte) {
		fmt.Println("case", name)
		require.NoError(t, os.WriteFile(path, data, 0o644))
		r, err := rt.Open(onnx.SessionOptions{Path: path, IntraOpThreads: 1})
		if err != nil {
			refused++
			require.NotContains(t, err.Error(), folder, "clients see the path")
			return
		}
		opened++
		r.Close()
	}
	for i, good := range models {
		for range 60 {
			at := rng.IntN(len(good))
			try(fmt.Sprintf("model %d cut off at %d", i, at), good[:at])
		}
		for n := range 150 {
			bad := bytes.Clone(good)
			for range 1 + rng.IntN(4) {
				bad[rng.IntN(len(bad))] ^= 1 << rng.IntN(8)
			}
			try(fmt.Sprintf("model %d with other bits, number %d", i, n), bad)
		}
		for n := range 60 {
			at, much := rng.IntN(len(good)), rng.IntN(20)
			bad := append(bytes.Clone(good[:at]), make([]byte, much)...)
			for k := range much {
				bad[at+k] = byte(rng.Uint32())
			}
			try(fmt.Sprintf("model %d with noise put in, number %d", i, n), append(bad, good[at:]...))
		}
	}
	for n := range 50 {
		noise := make([]byte, rng.IntN(300))
		for k := range noise {
			noise[k] = byte(rng.Uint32())
		}
		try(fmt.Sprint("noise, number ", n), noise)
	}
	fmt.Println("refused", refused, "opened", opened)
}

// shapes is a model with fixed, named and unnamed axes, a default and a long name.
func shapes() onnxtest.Model {
	return onnxtest.Model{
		Inputs: []onnxtest.Value{
			{Name: "a very long name, so that its length takes more than one byte of the file, if it is written often enough to be as long as this one is, which it is", Type: onnxtest.Int64, Dims: onnxtest.Dims(2, "batch", 3)},
			{Name: "scale", Type: onnxtest.Float, Dims: onnxtest.Dims()},
		},
		Initializers: []onnxtest.Tensor{{Name: "scale", Type: onnxtest.Float, Data: []float32{10}}},
		Nodes: []onnxtest.Node{
			{Op: "Identity", Inputs: []string{"scale"}, Outputs: []string{"y"}},
		},
		Outputs: []onnxtest.Value{{Name: "y", Type: onnxtest.Float, Dims: onnxtest.Dims()}},
	}
}
