package parity

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"tritonstateful/internal/cli/localserver"
	"tritonstateful/internal/cli/recording"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// The verdicts of a comparison.
const (
	SameBits  = "same bits"
	Close     = "within tolerance"
	Different = "different"
	Failed    = "failed"
	Skipped   = "skipped"
)

// A Result is what became of one comparison. The names of the fields in JSON are an interface: docs/command-check.md.
type Result struct {
	Name    string `json:"name"`
	Verdict string `json:"verdict"`
	// Values is how many numbers were compared, and MaxDifference the greatest absolute difference of two of them.
	Values        int64   `json:"values"`
	MaxDifference float64 `json:"max_difference"`
	// Where says where that was, or what failed, or why it was skipped.
	Where string `json:"where,omitempty"`
	// ByStep is the greatest absolute difference of each step. It is 0 for those before FirstStep, which were not compared.
	ByStep    []float64 `json:"by_step"`
	FirstStep int       `json:"first_step"`
}

// Good reports whether nothing is wrong.
func (r *Result) Good() bool { return r.Verdict != Different && r.Verdict != Failed }

// tolerance is what may differ: batched kernels add in another order. Everything but fractions must be the same.
func tolerance(d tensor.DType) (relative, absolute float64) {
	switch d {
	case tensor.FP16:
		return 4e-3, 4e-3
	case tensor.BF16:
		return 3e-2, 3e-2
	default:
		return 1e-4, 1e-5
	}
}

// compare adds the comparison of two answers to a step.
func (r *Result) compare(outputs []onnx.IOTensor, got localserver.Answer, want []localserver.Output, lane, step int) {
	place := func(output string) string { return fmt.Sprintf("sequence %d, step %d, output %q", lane, step, output) }
	for len(r.ByStep) <= step {
		r.ByStep = append(r.ByStep, 0)
	}
	if r.Verdict == Failed {
		return
	}
	if got.Err != nil {
		r.Verdict, r.Where = Failed, fmt.Sprintf("sequence %d, step %d: %v", lane, step, got.Err)
		return
	}
	for i := range want {
		if len(got.Outputs) != len(want) || len(got.Outputs[i].Data) != len(want[i].Data) || !alike(got.Outputs[i].Shape, want[i].Shape) {
			r.Verdict, r.Where = Failed, place(outputs[i].Name)+fmt.Sprintf(": shape %v, want the elements of %v", shapeOf(got, i), want[i].Shape)
			return
		}
		r.compareOutput(outputs[i].DType, got.Outputs[i].Data, want[i].Data, step, place(outputs[i].Name))
	}
}

func shapeOf(a localserver.Answer, output int) tensor.Shape {
	if output < len(a.Outputs) {
		return a.Outputs[output].Shape
	}
	return nil
}

// alike reports whether two shapes are the same but for axes of extent 1: answers have the batch in front.
func alike(a, b tensor.Shape) bool {
	long := func(shape tensor.Shape) tensor.Shape {
		return slices.DeleteFunc(shape.Clone(), func(extent int64) bool { return extent == 1 })
	}
	return long(a).Equal(long(b))
}

func (r *Result) compareOutput(d tensor.DType, got, want []byte, step int, place string) {
	size := d.Size()
	if size == 0 {
		r.Values++
		if !bytes.Equal(got, want) {
			r.Verdict, r.Where = Different, place
		}
		return
	}
	r.Values += int64(len(want) / size)
	if bytes.Equal(got, want) {
		return
	}
	relative, absolute := tolerance(d)
	for at := 0; at < len(want); at += size {
		if bytes.Equal(got[at:at+size], want[at:at+size]) {
			continue
		}
		a, b := number(got[at:at+size], d), number(want[at:at+size], d)
		difference := math.Abs(a - b)
		if math.IsNaN(a) && math.IsNaN(b) || a == b && recording.IsFraction(d) { // other bits of the same number
			difference = 0
		} else if math.IsNaN(difference) {
			difference = math.MaxFloat64
		}
		verdict := Close
		if !recording.IsFraction(d) || difference > absolute+relative*math.Abs(b) {
			verdict = Different
		}
		if worse(verdict, r.Verdict) || verdict == r.Verdict && difference > r.MaxDifference {
			r.Where = place
		}
		if worse(verdict, r.Verdict) {
			r.Verdict = verdict
		}
		r.MaxDifference = max(r.MaxDifference, difference)
		r.ByStep[step] = max(r.ByStep[step], difference)
	}
}

func worse(a, b string) bool {
	rank := map[string]int{SameBits: 0, Close: 1, Different: 2, Failed: 3}
	return rank[a] > rank[b]
}

// number is an element as a float64.
func number(data []byte, d tensor.DType) float64 {
	if recording.IsFraction(d) {
		return tensor.Float(data, d)
	}
	var n uint64
	for i, b := range data {
		n |= uint64(b) << (8 * i)
	}
	switch d {
	case tensor.Int8:
		return float64(int8(n))
	case tensor.Int16:
		return float64(int16(n))
	case tensor.Int32:
		return float64(int32(n))
	case tensor.Int64:
		return float64(int64(n))
	default:
		return float64(n)
	}
}
