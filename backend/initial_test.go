package backend

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// npy is an array file.
func npy(descr, shape, fortran string, data []byte) []byte {
	header := "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n"
	file := append([]byte("\x93NUMPY"), 1, 0)
	file = binary.LittleEndian.AppendUint16(file, uint16(len(header)))
	return append(append(file, header...), data...)
}

// initialFiles is a model's folder with these files of initial states.
func initialFiles(t *testing.T, files map[string][]byte) (directory string) {
	t.Helper()
	directory = t.TempDir()
	folder := filepath.Join(directory, "initial_state")
	require.NoError(t, os.Mkdir(folder, 0o755))
	for name, data := range files {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), data, 0o600))
	}
	return directory
}

// TestInitialStates: what a state is when a sequence starts.
func TestInitialStates(t *testing.T) {
	directory := initialFiles(t, map[string][]byte{
		"plain": int32s(5, 6), "short": int32s(5), "array.npy": npy("<i4", "(2,)", "False", int32s(7, 8)), "lane.npy": npy("<i4", "(1, 2)", "False", int32s(7, 8)),
		"float.npy": npy("<f4", "(2,)", "False", int32s(7, 8)), "wide.npy": npy("<i4", "(3,)", "False", int32s(1, 2, 3)), "cut.npy": npy("<i4", "(2,)", "False", int32s(7)),
		"fortran.npy": npy("<i4", "(1, 2)", "True", int32s(7, 8)), "text.npy": npy("<U4", "(2,)", "False", nil), "broken.npy": []byte("\x93NUMPY\x01\x00\xff\xff{"), "version.npy": []byte("\x93NUMPY\x09\x00\x00\x00"),
	})
	require.NoError(t, os.WriteFile(filepath.Join(directory, "secret"), int32s(1, 2), 0o600))
	tests := []struct {
		value, want string
		begin       []int32
	}{
		{"", "", []int32{0, 0}}, {"3", "", []int32{3, 3}}, {"-1[2]", "", []int32{-1, -1}}, {"ones[1,2]", "", []int32{1, 1}}, {"zeros", "", []int32{0, 0}}, {"0x10", "", []int32{16, 16}},
		{"file:plain", "", []int32{5, 6}}, {"file: array.npy", "", []int32{7, 8}}, {"file:lane.npy", "", []int32{7, 8}},
		{"1.5", `"1.5" is not a value of type INT32`, nil}, {"1[3]", "shape [3] does not fit the state's", nil}, {"1[2", `want a form like [2,128]`, nil}, {"1[-2]", "does not fit", nil},
		{"hello", "or file:NAME", nil}, {"hello", "parameter initial_states", nil},
		{"file:absent", `file "absent" in the model's folder initial_state`, nil}, {"file:../secret", `file "../secret" in the model's folder initial_state`, nil},
		{"file:short", `file "short" has 4 bytes: want 8`, nil}, {"file:float.npy", `file "float.npy" holds FP32: want INT32`, nil},
		{"file:wide.npy", "shape [3] does not fit", nil}, {"file:cut.npy", "4 bytes after its .npy header", nil}, {"file:fortran.npy", "Fortran order", nil},
		{"file:text.npy", `its .npy type "<U4" has no tensor type`, nil}, {"file:broken.npy", "its .npy header is cut off", nil}, {"file:version.npy", "its .npy version 9 is unknown", nil},
	}
	for _, tt := range tests {
		t.Run(tt.value, func(t *testing.T) {
			model, c := sumModel(), sumConfig()
			if tt.value != "" {
				c.Parameters["initial_states"] = config.Value{String: "Sum = " + tt.value}
			}
			in, err := model.instance(t, c, directory)
			if tt.want != "" {
				require.ErrorContains(t, err, `state <<<Sum, NewSum>>>: its initial value: `)
				require.ErrorContains(t, err, tt.want)
				return
			}
			require.NoError(t, err)
			for range 2 { // a START goes back to the initial value
				for step := int32(1); step <= 2; step++ {
					got := succeed(t, in, Request{Sequence: SequenceID{Number: 1}, Start: step == 1, Inputs: intInput(tensor.Shape{1, 2}, 100, 1000)})
					require.Equal(t, []int32{tt.begin[0] + 100*step, tt.begin[1] + 1000*step}, numbers(got[0].outputs[0]))
				}
			}
		})
	}
}

// TestInitialStateWithoutAFolder: the error names the parameter and the file.
func TestInitialStateWithoutAFolder(t *testing.T) {
	c := sumConfig()
	c.Parameters["initial_states"] = config.Value{String: "Sum = file:start.npy"}
	directory := t.TempDir()
	_, err := sumModel().instance(t, c, directory)
	require.ErrorContains(t, err, `parameter initial_states: file "start.npy"`)
	require.ErrorContains(t, err, "folder initial_state")
	require.NotContains(t, err.Error(), directory)
}

// TestInitialShape: how long a growing state is at the start of a sequence.
func TestInitialShape(t *testing.T) {
	const list = "sequence_batching.state"
	tests := []struct {
		name, pairs string
		states      []config.StateConfig
		want        []int32
		fault       string
	}{
		{"a pair", "<<<Cache, NewCache>>>", nil, []int32{7}, ""},
		{list, "", []config.StateConfig{{}}, []int32{0, 7}, ""},
		{"both", "<<<Cache, NewCache>>>", []config.StateConfig{{}}, []int32{7}, ""},
		{"dims of zeros", "", []config.StateConfig{{Initial: []config.InitialState{{DataType: "TYPE_INT32", Dims: tensor.Shape{2}, ZeroData: true}}}}, []int32{0, 0, 7}, ""},
		{"dims of zeros with the batch", "", []config.StateConfig{{Initial: []config.InitialState{{DataType: "TYPE_INT32", Dims: tensor.Shape{1, 3}, ZeroData: true}}}}, []int32{0, 0, 0, 7}, ""},
		{"no length", "", []config.StateConfig{{Initial: []config.InitialState{{DataType: "TYPE_INT32", Dims: tensor.Shape{0}, ZeroData: true}}}}, []int32{7}, ""},
		{"zeros without dims", "", []config.StateConfig{{Initial: []config.InitialState{{DataType: "TYPE_INT32", ZeroData: true}}}}, []int32{0, 7}, ""},
		{"other type", "", []config.StateConfig{{Initial: []config.InitialState{{Name: "i", DataType: "TYPE_FP32", Dims: tensor.Shape{2}, ZeroData: true}}}}, nil, `initial_state "i" has data_type TYPE_FP32: want TYPE_INT32`},
		{"other rank", "", []config.StateConfig{{Initial: []config.InitialState{{Name: "i", DataType: "TYPE_INT32", Dims: tensor.Shape{1, 1, 2}, ZeroData: true}}}}, nil, `initial_state "i": shape [1,1,2] does not fit the state's [1,-1]`},
		{"dynamic", "", []config.StateConfig{{Initial: []config.InitialState{{Name: "i", DataType: "TYPE_INT32", Dims: tensor.Shape{-1}, ZeroData: true}}}}, nil, `initial_state "i": shape [-1] does not fit the state's [1,-1]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			model, c := cacheModel(), cacheConfig()
			c.Parameters["state_pairs"] = config.Value{String: tt.pairs}
			for _, s := range tt.states {
				s.InputName, s.OutputName, s.DataType, s.Dims = "Cache", "NewCache", "TYPE_INT32", tensor.Shape{-1}
				c.Sequence.States = append(c.Sequence.States, s)
			}
			in, err := model.instance(t, c, "")
			if tt.fault != "" {
				require.ErrorContains(t, err, tt.fault)
				return
			}
			require.NoError(t, err)
			for range 2 {
				got := succeed(t, in, Request{Sequence: SequenceID{Number: 1}, Start: true, Inputs: intInput(tensor.Shape{1, 1}, 7)})
				require.Equal(t, tt.want, numbers(got[0].outputs[0]))
			}
		})
	}
}

// TestLongDataFile: of the file of Triton's own initial_state the first bytes count,
// which is said; the one that a parameter names must have the size.
func TestLongDataFile(t *testing.T) {
	directory := initialFiles(t, map[string][]byte{"long": int32s(5, 6, 7)})
	c := sumConfig()
	c.Parameters = map[string]config.Value{"initial_states": {String: "Sum = file:long"}, "state_pairs": c.Parameters["state_pairs"]}
	_, err := sumModel().instance(t, c, directory)
	require.ErrorContains(t, err, `file "long" has 12 bytes: want 8`)

	c = sumConfig()
	c.Parameters = nil
	initial := config.InitialState{Name: "long", DataType: "TYPE_INT32", Dims: tensor.Shape{2}, DataFile: "long"}
	c.Sequence.States = []config.StateConfig{{InputName: "Sum", OutputName: "NewSum", DataType: "TYPE_INT32", Dims: tensor.Shape{2}, Initial: []config.InitialState{initial}}}
	in, err := sumModel().instance(t, c, directory)
	require.NoError(t, err)
	require.Len(t, in.plan.Warnings, 1)
	require.Contains(t, in.plan.Warnings[0], `of file "long", which has 12`)
	got := succeed(t, in, Request{Sequence: SequenceID{Number: 1}, Start: true, Inputs: intInput(tensor.Shape{1, 2}, 100, 1000)})
	require.Equal(t, []int32{105, 1006}, numbers(got[0].outputs[0]))
}

// TestInitialStateOfOneNumber: Triton wants an extent in dims, so a state of a single
// number may have 1 there, whether it has a batch or not.
func TestInitialStateOfOneNumber(t *testing.T) {
	for _, dims := range [][]int64{{}, {-1}} {
		m := &scripted{sig: onnx.Signature{
			Inputs:  []onnx.TensorInfo{info("Input", tensor.Int32, -1, 1), info("N", tensor.Int32, dims...)},
			Outputs: []onnx.TensorInfo{info("Output", tensor.Int32, -1, 1), info("NextN", tensor.Int32, dims...)},
		}}
		m.run = func(inputs, outputs []onnx.Tensor) error {
			from := inputs[1].Data.Bytes
			for to := outputs[0].Data.Bytes; len(to) > 0; to = to[4:] {
				copy(to, from[:4])
				if len(from) > 4 {
					from = from[4:]
				}
			}
			return nil
		}
		directory := initialFiles(t, map[string][]byte{"seven": int32s(7)})
		c := sumConfig()
		c.Parameters = nil
		c.Inputs[0].Dims, c.Outputs[0].Dims = tensor.Shape{1}, tensor.Shape{1}
		initial := config.InitialState{Name: "seven", DataType: "TYPE_INT32", Dims: tensor.Shape{1}, DataFile: "seven"}
		c.Sequence.States = []config.StateConfig{{InputName: "N", OutputName: "NextN", DataType: "TYPE_INT32", Dims: tensor.Shape{1}, Initial: []config.InitialState{initial}}}
		in, err := m.instance(t, c, directory)
		require.NoError(t, err)
		require.Equal(t, []int32{7}, numbers(send(t, in, one(1, true, 0))[0].outputs[0]))
	}
}
