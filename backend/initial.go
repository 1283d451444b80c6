package backend

import (
	"fmt"
	"io"
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
