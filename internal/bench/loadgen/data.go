package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"tritonstateful/internal/bench/kserve"
)

// encoder writes a small whole number as one element of a datatype.
type encoder struct {
	bytes int
	put   func(element []byte, value uint8)
}

// smallValues is how many different numbers the inputs are made of: 0 to 7 exist exactly in every datatype, and sums
// of them stay exact in FP32 for millions of elements.
const smallValues = 8

// halves are the FP16 patterns of 0 to 7.
var halves = [smallValues]uint16{0, 0x3C00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700}

var encoders = map[string]encoder{
	"BOOL":   {1, func(b []byte, v uint8) { b[0] = v & 1 }},
	"INT8":   {1, putWhole},
	"UINT8":  {1, putWhole},
	"INT16":  {2, putWhole},
	"UINT16": {2, putWhole},
	"INT32":  {4, putWhole},
	"UINT32": {4, putWhole},
	"INT64":  {8, putWhole},
	"UINT64": {8, putWhole},
	"FP16":   {2, func(b []byte, v uint8) { binary.LittleEndian.PutUint16(b, halves[v]) }},
	"FP32":   {4, func(b []byte, v uint8) { binary.LittleEndian.PutUint32(b, math.Float32bits(float32(v))) }},
	"FP64":   {8, func(b []byte, v uint8) { binary.LittleEndian.PutUint64(b, math.Float64bits(float64(v))) }},
}

// putWhole writes a whole number of any width: little-endian, so only the first byte is not zero.
func putWhole(element []byte, value uint8) {
	clear(element)
	element[0] = value
}

// valueAt is element i of a sequence's input at a step: the same in every run, and different enough between
// neighbours that swapped rows, steps and sequences change the sums.
func valueAt(sequence, step, i int) uint8 {
	return uint8((3*sequence + 5*step + i + i/smallValues) % smallValues)
}

// fill overwrites data, elements of the encoder's datatype, with the values of one step.
func (e encoder) fill(data []byte, sequence, step int) {
	for i := range len(data) / e.bytes {
		e.put(data[i*e.bytes:(i+1)*e.bytes], valueAt(sequence, step, i))
	}
}

// makeInputs makes the tensors of a sequence's first step.
func makeInputs(specs []inputSpec, sequence int) ([]kserve.Tensor, error) {
	tensors := make([]kserve.Tensor, len(specs))
	for i, spec := range specs {
		e, known := encoders[spec.Datatype]
		if !known {
			return nil, fmt.Errorf("input %q: datatype %q is not supported", spec.Name, spec.Datatype)
		}
		elements := 1
		for _, dim := range spec.Shape {
			if dim < 0 {
				return nil, fmt.Errorf("input %q: shape %v needs sizes, not wildcards", spec.Name, spec.Shape)
			}
			elements *= int(dim)
		}
		data := make([]byte, elements*e.bytes)
		e.fill(data, sequence, 0)
		tensors[i] = kserve.Tensor{Name: spec.Name, Datatype: spec.Datatype, Shape: spec.Shape, Data: data}
	}
	return tensors, nil
}

// values are what a client sends in its first input who sends values that the model refuses.
type values struct {
	right, wrong []byte
	from         int // the first step with a wrong one
}

func newValues(c config, right []byte) *values {
	v := &values{right: bytes.Clone(right), wrong: make([]byte, len(right)), from: c.wrongFrom}
	e := encoders[c.inputs[0].Datatype]
	for at := 0; at < len(right); at += e.bytes {
		e.put(v.wrong[at:at+e.bytes], uint8(c.wrong))
	}
	return v
}

func (v *values) at(step int) []byte {
	if step >= v.from {
		return v.wrong
	}
	return v.right
}
