package main

import (
	"encoding/binary"
	"fmt"
	"math"
)

// accumulator checks the answers of an accumulate model for one sequence. The model sees an input of rows × columns
// and keeps one sum per column:
//
//	sum[c]       = (START ? 0 : sum[c]) + Σ input[r][c] over the rows r
//	output[r][c] = input[r][c] + sum[c]
type accumulator struct {
	output   string // its name
	sequence int
	put      encoder
	read     func(element []byte) float64
	sums     []float64 // per column
	input    []uint8   // the values sent last, row-major
}

// readers decode the datatypes whose sums can be checked; FP32 is exact for the small values that we send.
var readers = map[string]func([]byte) float64{
	"FP32":  func(b []byte) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))) },
	"INT32": func(b []byte) float64 { return float64(int32(binary.LittleEndian.Uint32(b))) },
}

func newAccumulator(spec inputSpec, output string, sequence int) (*accumulator, error) {
	read, known := readers[spec.Datatype]
	if !known || len(spec.Shape) == 0 {
		return nil, fmt.Errorf("input %q: -verify accumulate needs FP32 or INT32 with columns as the last axis, not %s %v",
			spec.Name, spec.Datatype, spec.Shape)
	}
	elements := 1
	for _, dim := range spec.Shape {
		elements *= int(dim)
	}
	return &accumulator{
		output:   output,
		sequence: sequence,
		put:      encoders[spec.Datatype],
		read:     read,
		sums:     make([]float64, spec.Shape[len(spec.Shape)-1]),
		input:    make([]uint8, elements),
	}, nil
}

// next writes the input of a step (0: START) into a request and adds it to the expected sums.
func (a *accumulator) next(data []byte, step int) {
	if step == 0 {
		clear(a.sums)
	}
	a.put.fill(data, a.sequence, step)
	for i := range a.input {
		a.input[i] = valueAt(a.sequence, step, i)
		a.sums[i%len(a.sums)] += float64(a.input[i])
	}
}

// check compares the output of the last step with what the sums say.
func (a *accumulator) check(data []byte) error {
	if want := len(a.input) * a.put.bytes; len(data) != want {
		return fmt.Errorf("output %q has %d bytes, want %d", a.output, len(data), want)
	}
	for i, value := range a.input {
		got := a.read(data[i*a.put.bytes:])
		if want := float64(value) + a.sums[i%len(a.sums)]; got != want {
			return fmt.Errorf("output %q element %d is %g, want %g", a.output, i, got, want)
		}
	}
	return nil
}
