package planner

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
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
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("file %q: want it in the model's folder initial_state, which does not exist", name)
		}
		if err != nil {
			return nil, fmt.Errorf("file %q in the model's folder initial_state: %w", name, err)
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
func (pl *planner) initialValue(s *plan.State) (err error) {
	s.Shape, s.Begins = s.Dims.With(s.Axis, 1), "zeros"
	text, given := config.Lookup(pl.params.InitialStates, s.Input)
	switch {
	case given:
		if err = pl.initialFromText(s, text); err != nil {
			err = fmt.Errorf("parameter initial_states: %w", err)
		}
	case s.Initial != nil && (s.Initial.DataFile != "" || len(s.Initial.Dims) > 0):
		err = pl.initialFromConfig(s)
	default:
		for i, d := range s.Shape {
			switch {
			case d >= 0:
			case s.Implicit:
				s.Shape[i] = 1
			default:
				s.Shape[i], s.Begins = 0, "empty"
			}
		}
	}
	if err != nil {
		return fmt.Errorf("its initial value: %w", err)
	}
	return nil
}

func (pl *planner) initialFromConfig(s *plan.State) error {
	if s.Initial.DataType != "" && s.Initial.DataType != s.DType.ConfigName() {
		return fmt.Errorf("initial_state %q has data_type %s: want %s", s.Initial.Name, s.Initial.DataType, s.DType.ConfigName())
	}
	if s.Initial.DataFile != "" {
		return pl.initialFromFile(s, s.Initial.DataFile, s.Initial.Dims, true)
	}
	if err := pl.setShape(s, s.Initial.Dims); err != nil {
		return fmt.Errorf("initial_state %q: %w", s.Initial.Name, err)
	}
	return nil
}

// initialFromText reads VALUE, VALUE[SHAPE] or file:NAME.
func (pl *planner) initialFromText(s *plan.State, text string) error {
	if name, ok := strings.CutPrefix(text, "file:"); ok {
		return pl.initialFromFile(s, strings.TrimSpace(name), nil, false)
	}
	number, extents, shaped := strings.Cut(text, "[")
	if shaped {
		shape, err := parseShape("[" + extents)
		if err != nil {
			return err
		}
		if err := pl.setShape(s, shape); err != nil {
			return err
		}
	}
	for i, d := range s.Shape {
		if d < 0 {
			s.Shape[i] = 0
		}
	}
	element, err := tensor.ParseElement(strings.TrimSpace(number), s.DType)
	if err != nil {
		return fmt.Errorf("%w: want a number, a number with a shape, such as %s, or file:NAME", err, s.ExampleValue(1))
	}
	if s.Value, err = repeated(element, s.Shape, s.DType); err != nil {
		return err
	}
	s.Begins = text
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
// enough: Triton takes as many as the state has.
func (pl *planner) initialFromFile(s *plan.State, name string, dims tensor.Shape, first bool) error {
	data, err := pl.files(name)
	if err != nil {
		return err
	}
	s.Begins = "file " + name
	if strings.HasPrefix(string(data[:min(len(data), len(npyMagic))]), npyMagic) {
		dtype, shape, content, err := ParseNPY(data)
		if err != nil {
			return fmt.Errorf("file %q: %w", name, err)
		}
		if dtype != s.DType {
			return fmt.Errorf("file %q holds %v: want %v", name, dtype, s.DType)
		}
		data, dims = content, shape
	}
	if dims != nil {
		if err := pl.setShape(s, dims); err != nil {
			return fmt.Errorf("file %q: %w", name, err)
		}
	}
	want, err := s.Shape.Bytes(s.DType)
	if err != nil {
		return fmt.Errorf("file %q: %w: give the shape by a .npy file or by dims", name, err)
	}
	if first && int64(len(data)) > want {
		pl.warn("state %q begins with the first %d bytes of file %q, which has %d: as in Triton, the rest is ignored", s.Input, want, name, len(data))
		data = data[:want]
	}
	if int64(len(data)) != want {
		return fmt.Errorf("file %q has %d bytes: want %d for shape %v of %v", name, len(data), want, s.Shape, s.DType)
	}
	s.Value = data
	return nil
}

// setShape takes the shape of an initial value: of one lane, with the batch axis
// as 1 or left out. It may differ from what the output fixes where the input is
// dynamic: models that find out their states' shapes begin with ones.
func (pl *planner) setShape(s *plan.State, shape tensor.Shape) error {
	full := slices.Clone(shape)
	switch {
	case s.Axis != tensor.NoAxis && len(full) == len(s.Dims)-1:
		full = slices.Insert(full, s.Axis, 1)
	case len(s.Dims) == 0 && shape.Equal(tensor.Shape{1}): // Triton has no dims for a single number
		full = tensor.Shape{}
	}
	if len(full) != len(s.Dims) {
		return fmt.Errorf("shape %v does not fit the state's %v", shape, s.Dims)
	}
	dims := s.Dims.Clone()
	for i, d := range full {
		if i != s.Axis && d >= 0 && d != dims[i] && pl.sig.Inputs[s.In].Dims[i] < 0 {
			dims[i] = tensor.Dynamic
		}
		if d < 0 || dims[i] >= 0 && d != dims[i] || i == s.Axis && d != 1 {
			return fmt.Errorf("shape %v does not fit the state's %v", shape, s.Dims)
		}
	}
	s.Shape, s.Dims = full, dims
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
