package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"tritonstateful/backend/config"
	"tritonstateful/internal/statestore"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// encoder makes values that are saved out of snapshots. It keeps its memory.
type encoder struct {
	tensors []statestore.Tensor
	wide    []byte // one tensor before it is narrowed
	writer  statestore.Writer
}

// encode lays out the value of a job and releases its snapshot. The value is valid until the next
// call. It notes how many elements did not fit.
func (c *encoder) encode(p *Policy, j *job) (value []byte, err error) {
	defer j.values.Release()
	j.clamped = 0
	values := j.values.Values()
	c.tensors = c.tensors[:0]
	for i := range values {
		v := &values[i]
		c.tensors = append(c.tensors, statestore.Tensor{Name: v.Name, DType: p.savedType(v.DType), Shape: v.Shape})
	}
	if err := c.writer.Begin(j.totals, c.tensors); err != nil {
		return nil, err
	}
	for i := range values {
		if to := c.writer.Tensor(i); c.tensors[i].DType == values[i].DType {
			j.values.CopyTo(i, to)
		} else {
			c.wide = slices.Grow(c.wide[:0], 2*len(to))[:2*len(to)]
			j.values.CopyTo(i, c.wide)
			j.clamped += narrow(to, c.wide, c.tensors[i].DType)
		}
	}
	return c.writer.Seal(statestore.Head{Epoch: j.epoch, Step: j.steps, Saved: time.Now(), Model: p.Model, Layout: p.Layout}), nil
}

// savedType is the type that elements of a state are saved in.
func (p *Policy) savedType(stored tensor.DType) tensor.DType {
	switch {
	case stored != tensor.FP32:
		return stored
	case p.Precision == config.SaveFP16:
		return tensor.FP16
	case p.Precision == config.SaveBF16:
		return tensor.BF16
	default:
		return stored
	}
}

// narrow converts elements of type FP32, and returns how many did not fit.
func narrow(to, from []byte, dtype tensor.DType) (clamped uint64) {
	if dtype == tensor.FP16 {
		return tensor.Halves(to, from)
	}
	tensor.BFloats(to, from)
	return 0
}

// widen converts elements to type FP32.
func widen(from []byte, dtype tensor.DType) []byte {
	to := make([]byte, 2*len(from))
	if dtype == tensor.FP16 {
		tensor.Widens(to, from)
	} else {
		tensor.WidenBFloats(to, from)
	}
	return to
}

// decode checks a value that was saved, and returns what it has: the values of these states,
// in their order. The result has parts of value.
func (p *Policy) decode(value []byte, states []statestore.Tensor) (*statebuffer.Saved, error) {
	record, err := statestore.Parse(value)
	if format := (*statestore.FormatError)(nil); errors.As(err, &format) {
		return nil, err
	}
	if err != nil {
		return nil, &damagedError{err}
	}
	if record.Layout != p.Layout {
		return nil, fmt.Errorf("it was saved by a model with other states (layout %x, model %x): this model has layout %x, model %x", record.Layout, record.Model, p.Layout, p.Model)
	}
	if record.Model != p.Model && !p.AdoptLayout {
		return nil, fmt.Errorf("it was saved by another model (%x): this one is %x; its states have the same layout, so the parameter adopt = same_layout would take it", record.Model, p.Model)
	}
	saved := &statebuffer.Saved{Steps: record.Step, Totals: record.Counters, Values: make([]statebuffer.SavedValue, len(states))}
	for i, state := range states {
		at := slices.IndexFunc(record.Tensors, func(t statestore.RecordTensor) bool { return t.Name == state.Name })
		if at < 0 {
			return nil, &damagedError{fmt.Errorf("it has no state %q", state.Name)}
		}
		t := &record.Tensors[at]
		saved.Values[i] = statebuffer.SavedValue{DType: t.DType, Shape: t.Shape, Data: t.Data}
		if state.DType == tensor.FP32 && (t.DType == tensor.FP16 || t.DType == tensor.BF16) {
			saved.Values[i].DType, saved.Values[i].Data = tensor.FP32, widen(t.Data, t.DType)
		}
	}
	return saved, nil
}

// damagedError says that a saved state is not what was saved.
type damagedError struct{ error }

func (e *damagedError) Unwrap() error { return e.error }
