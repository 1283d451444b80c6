package load

import (
	"encoding/binary"
	"fmt"
	"math"

	"tritonstateful/clients/go/kserve"
)

// codec writes a small whole number as one element of a datatype, and reads it back where sums can be checked.
type codec struct {
	bytes int
	put   func(element []byte, value uint8)
	value func(element []byte) float64
}

// smallValues is how many different numbers the inputs are made of: 0 to 7 exist exactly in every datatype, and sums
// of them stay exact in FP32 for millions of elements.
const smallValues = 8

// halves are the FP16 patterns of 0 to 7.
var halves = [smallValues]uint16{0, 0x3C00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700}

var codecs = map[string]codec{
	"BOOL":   {1, func(b []byte, v uint8) { b[0] = v & 1 }, nil},
	"INT8":   {1, putWhole, nil},
	"UINT8":  {1, putWhole, nil},
	"INT16":  {2, putWhole, nil},
	"UINT16": {2, putWhole, nil},
	"INT32":  {4, putWhole, func(b []byte) float64 { return float64(int32(binary.LittleEndian.Uint32(b))) }},
	"UINT32": {4, putWhole, nil},
	"INT64":  {8, putWhole, nil},
	"UINT64": {8, putWhole, nil},
	"FP16":   {2, func(b []byte, v uint8) { binary.LittleEndian.PutUint16(b, halves[v%smallValues]) }, nil},
	"FP32": {
		4, func(b []byte, v uint8) { binary.LittleEndian.PutUint32(b, math.Float32bits(float32(v))) },
		func(b []byte) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))) },
	},
	"BF16": {2, func(b []byte, v uint8) { binary.LittleEndian.PutUint16(b, uint16(math.Float32bits(float32(v))>>16)) }, nil},
	// A string of one digit, after its length.
	"BYTES": {5, func(b []byte, v uint8) {
		binary.LittleEndian.PutUint32(b, 1)
		b[4] = '0' + v
	}, nil},
	"FP64": {8, func(b []byte, v uint8) { binary.LittleEndian.PutUint64(b, math.Float64bits(float64(v))) }, nil},
}

// putWhole writes a whole number of any width: little-endian, so only the first byte is not zero.
func putWhole(element []byte, value uint8) {
	clear(element)
	element[0] = value
}

// valueAt is element i of a sequence's input at a step: the same in every run, and different enough between
// neighbours that swapped requests, steps and sequences change the sums.
func valueAt(sequence, step, i int) uint8 {
	return uint8((3*sequence + 5*step + i + i/smallValues) % smallValues)
}

// fill overwrites data with the values of all its elements.
func (c codec) fill(data []byte, value func(i int) uint8) {
	for i := range len(data) / c.bytes {
		c.put(data[i*c.bytes:(i+1)*c.bytes], value(i))
	}
}

// makeInputs makes the tensors of a sequence's first step.
func makeInputs(specs []Input, sequence int) ([]kserve.Tensor, error) {
	tensors := make([]kserve.Tensor, len(specs))
	for i, spec := range specs {
		c, known := codecs[spec.Datatype]
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
		data := make([]byte, elements*c.bytes)
		c.fill(data, func(i int) uint8 { return valueAt(sequence, 0, i) })
		tensors[i] = kserve.Tensor{Name: spec.Name, Datatype: spec.Datatype, Shape: spec.Shape, Data: data}
	}
	return tensors, nil
}
