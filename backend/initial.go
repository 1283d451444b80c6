package backend

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"tritonstateful/backend/config"
	"tritonstateful/internal/tensor"
)

// fileReader reads a file of initial states by its name.
type fileReader func(name string) ([]byte, error)

// maxInitialFile bounds what a file of an initial state may hold.
const maxInitialFile = 1 << 30

// initialFiles reads from the folder initial_state of a model, and nowhere else:
// a name or a link that leads out of it is an error.
func initialFiles(modelDirectory string) fileReader {
	return func(name string) ([]byte, error) {
		root, err := os.OpenRoot(filepath.Join(modelDirectory, "initial_state"))
		if err != nil {
			return nil, fmt.Errorf("the folder initial_state of the model: %w", err)
		}
		defer root.Close()
		file, err := root.Open(name)
		if err != nil {
			return nil, fmt.Errorf("file %q in the model's folder initial_state: %w", name, err)
		}
		defer file.Close()
		data, err := io.ReadAll(io.LimitReader(file, maxInitialFile+1))
		if err == nil && len(data) > maxInitialFile {
			err = fmt.Errorf("file %q is larger than %d bytes", name, maxInitialFile)
		}
		return data, err
	}
}

// initialValue finds what a state is when a sequence starts: what the parameter
// initial_states says, or initial_state of the configuration, or zeros. A dynamic
// axis starts with length 0, or with 1 where Triton's implicit state is what the
// configuration was written for: its models reckon with one element.
func (w *wirer) initialValue(s *stateWire) (err error) {
	s.shape, s.begin = s.dims.With(s.axis, 1), "zeros"
	text, given := config.Lookup(w.params.InitialStates, s.input)
	switch {
	case given:
		err = w.initialFromText(s, text)
	case s.initial != nil && (s.initial.DataFile != "" || len(s.initial.Dims) > 0):
		err = w.initialFromConfig(s)
	default:
		for i, d := range s.shape {
			switch {
			case d >= 0:
			case s.implicit:
				s.shape[i] = 1
			default:
				s.shape[i], s.begin = 0, "empty"
			}
		}
	}
	if err != nil {
		return fmt.Errorf("its initial value: %w", err)
	}
	return nil
}

func (w *wirer) initialFromConfig(s *stateWire) error {
	if s.initial.DataType != "" && s.initial.DataType != s.dtype.ConfigName() {
		return fmt.Errorf("initial_state %q has data_type %s: want %s", s.initial.Name, s.initial.DataType, s.dtype.ConfigName())
	}
	if s.initial.DataFile != "" {
		return w.initialFromFile(s, s.initial.DataFile, s.initial.Dims, true)
	}
	if err := w.setShape(s, s.initial.Dims); err != nil {
		return fmt.Errorf("initial_state %q: %w", s.initial.Name, err)
	}
	return nil
}

// initialFromText reads VALUE, VALUE[SHAPE] or file:NAME.
func (w *wirer) initialFromText(s *stateWire, text string) error {
	if name, ok := strings.CutPrefix(text, "file:"); ok {
		return w.initialFromFile(s, strings.TrimSpace(name), nil, false)
	}
	number, extents, shaped := strings.Cut(text, "[")
	if shaped {
		shape, err := parseShape("[" + extents)
		if err != nil {
			return err
		}
		if err := w.setShape(s, shape); err != nil {
			return err
		}
	}
	for i, d := range s.shape {
		if d < 0 {
			s.shape[i] = 0
		}
	}
	element, err := parseElement(strings.TrimSpace(number), s.dtype)
	if err != nil {
		return err
	}
	if s.value, err = repeated(element, s.shape, s.dtype); err != nil {
		return err
	}
	s.begin = text
	return nil
}

// repeated is a tensor whose elements are all the same.
func repeated(element []byte, shape tensor.Shape, dtype tensor.DType) ([]byte, error) {
	bytes, err := shape.Bytes(dtype)
	if err != nil {
		return nil, err
	}
	if bytes > maxInitialFile {
		return nil, fmt.Errorf("shape %v of %v takes %d bytes: at most %d can be filled with a value", shape, dtype, bytes, maxInitialFile)
	}
	return slices.Repeat(element, int(bytes)/len(element)), nil
}

// initialFromFile reads a .npy file, or plain bytes, the first of which may be
// enough: Triton takes so many as the state has.
func (w *wirer) initialFromFile(s *stateWire, name string, dims tensor.Shape, first bool) error {
	data, err := w.files(name)
	if err != nil {
		return err
	}
	s.begin = "file " + name
	if strings.HasPrefix(string(data[:min(len(data), len(npyMagic))]), npyMagic) {
		dtype, shape, content, err := parseNPY(data)
		if err != nil {
			return fmt.Errorf("file %q: %w", name, err)
		}
		if dtype != s.dtype {
			return fmt.Errorf("file %q holds %v: want %v", name, dtype, s.dtype)
		}
		data, dims = content, shape
	}
	if dims != nil {
		if err := w.setShape(s, dims); err != nil {
			return fmt.Errorf("file %q: %w", name, err)
		}
	}
	want, err := s.shape.Bytes(s.dtype)
	if err != nil {
		return fmt.Errorf("file %q: %w: give the shape by a .npy file or by dims", name, err)
	}
	if first && int64(len(data)) > want {
		w.warn("state %q begins with the first %d bytes of file %q, which has %d: as with Triton, the rest does not count", s.input, want, name, len(data))
		data = data[:want]
	}
	if int64(len(data)) != want {
		return fmt.Errorf("file %q has %d bytes: want %d for shape %v of %v", name, len(data), want, s.shape, s.dtype)
	}
	s.value = data
	return nil
}

// setShape takes the shape of an initial value: of one lane, with the batch axis
// as 1 or left out. It may differ from what the output fixes where the input is
// dynamic: models that find out their states' shapes begin with ones.
func (w *wirer) setShape(s *stateWire, shape tensor.Shape) error {
	full := slices.Clone(shape)
	switch {
	case s.axis != tensor.NoAxis && len(full) == len(s.dims)-1:
		full = slices.Insert(full, s.axis, 1)
	case len(s.dims) == 0 && shape.Equal(tensor.Shape{1}): // Triton has no dims for a single number
		full = tensor.Shape{}
	}
	if len(full) != len(s.dims) {
		return fmt.Errorf("shape %v does not fit the state's %v", shape, s.dims)
	}
	dims := s.dims.Clone()
	for i, d := range full {
		if i != s.axis && d >= 0 && d != dims[i] && w.sig.Inputs[s.in].Dims[i] < 0 {
			dims[i] = tensor.Dynamic
		}
		if d < 0 || dims[i] >= 0 && d != dims[i] || i == s.axis && d != 1 {
			return fmt.Errorf("shape %v does not fit the state's %v", shape, s.dims)
		}
	}
	s.shape, s.dims = full, dims
	return nil
}

func parseShape(text string) (tensor.Shape, error) {
	inner, ok := strings.CutSuffix(strings.TrimSpace(text), "]")
	inner, open := strings.CutPrefix(inner, "[")
	if !ok || !open {
		return nil, fmt.Errorf("shape %q: want a form like [2,128]", text)
	}
	shape := tensor.Shape{}
	for field := range strings.SplitSeq(inner, ",") {
		if field = strings.TrimSpace(field); field == "" && inner == "" {
			continue
		}
		n, err := strconv.ParseInt(field, 10, 63)
		if err != nil {
			return nil, fmt.Errorf("shape %q: want a form like [2,128]", text)
		}
		shape = append(shape, n)
	}
	return shape, nil
}

// parseElement is the bytes of one element from a word: a number, nan, inf, true,
// false or zeros.
func parseElement(word string, dtype tensor.DType) ([]byte, error) {
	switch word {
	case "", "zero", "zeros", "empty", "false":
		word = "0"
	case "one", "ones", "true":
		word = "1"
	}
	bad := func() error { return fmt.Errorf("%q is no value of type %v", word, dtype) }
	size := dtype.Size()
	switch dtype {
	case tensor.FP32, tensor.FP64, tensor.FP16, tensor.BF16:
		f, err := strconv.ParseFloat(word, 64)
		if err != nil || !inRange(f, dtype) {
			return nil, bad()
		}
		return floatElement(f, dtype), nil
	case tensor.Bool, tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64:
		bits := 8 * size
		if dtype == tensor.Bool {
			bits = 1
		}
		u, err := strconv.ParseUint(word, 0, bits)
		if err != nil {
			return nil, bad()
		}
		return binary.NativeEndian.AppendUint64(nil, u)[:size], nil
	case tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64:
		i, err := strconv.ParseInt(word, 0, 8*size)
		if err != nil {
			return nil, bad()
		}
		return binary.NativeEndian.AppendUint64(nil, uint64(i))[:size], nil
	}
	return nil, bad()
}

// inRange tells whether a number, unless it is infinite itself, is a finite one of a
// type: -1e9 in FP16 would be -65504, and 1e39 in FP32 infinite.
func inRange(f float64, dtype tensor.DType) bool {
	if math.IsInf(f, 0) || dtype == tensor.FP64 {
		return true
	}
	f32 := float32(f)
	_, clamped := tensor.Half(f32)
	switch {
	case math.IsInf(float64(f32), 0):
		return false
	case dtype == tensor.BF16:
		return tensor.BFloat16(f32)&0x7fff != 0x7f80 // infinity, of either sign
	default:
		return dtype != tensor.FP16 || !clamped
	}
}

// floatElement is the bytes of a number; 16-bit types are rounded to nearest even.
func floatElement(f float64, dtype tensor.DType) []byte {
	switch dtype {
	case tensor.FP64:
		return binary.NativeEndian.AppendUint64(nil, math.Float64bits(f))
	case tensor.FP32:
		return binary.NativeEndian.AppendUint32(nil, math.Float32bits(float32(f)))
	case tensor.BF16:
		return binary.NativeEndian.AppendUint16(nil, tensor.BFloat16(float32(f)))
	default:
		h, _ := tensor.Half(float32(f))
		return binary.NativeEndian.AppendUint16(nil, h)
	}
}
