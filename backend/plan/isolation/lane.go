package isolation

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// joinLanes puts the lanes of an input into one tensor. Strings have their lanes on the
// outermost axis.
func joinLanes(shape tensor.Shape, axis int, dtype tensor.DType, lanes []lane, input int) (data []byte, err error) {
	if dtype == tensor.Bytes {
		for _, l := range lanes {
			data = append(data, l[input]...)
		}
		return data, nil
	}
	layout, err := statebuffer.LayoutOf(shape, axis, dtype)
	if err != nil {
		return nil, err
	}
	data = make([]byte, layout.BatchBytes(len(lanes)))
	for i, l := range lanes {
		layout.PutLane(data, len(lanes), i, l[input])
	}
	return data, nil
}

// laneOf is what a tensor on the host has of a lane; nil if it has no such lane, or if its
// strings do not lie lane by lane.
func laneOf(t *onnx.Tensor, axis, lane int) []byte {
	if axis >= len(t.Shape) || int64(lane) >= t.Shape[axis] {
		return nil
	}
	if t.DType == tensor.Bytes {
		return stringsOf(t, axis, lane)
	}
	layout, err := statebuffer.LayoutOf(t.Shape, axis, t.DType)
	if err != nil {
		return nil
	}
	value := make([]byte, layout.LaneBytes())
	layout.TakeLane(value, t.Data.Bytes, int(t.Shape[axis]), lane)
	return value
}

// stringsOf is what a tensor of strings has of a lane.
func stringsOf(t *onnx.Tensor, axis, lane int) []byte {
	n, err := t.Shape.Without(axis).Elements()
	if axis != 0 || err != nil {
		return nil
	}
	rest, from := t.Data.Bytes, []byte{}
	for at := range n * int64(lane+1) {
		if len(rest) < 4 {
			return nil
		}
		size := 4 + int(binary.NativeEndian.Uint32(rest))
		if size > len(rest) {
			return nil
		}
		if at == n*int64(lane) {
			from = rest
		}
		rest = rest[size:]
	}
	return from[:len(from)-len(rest)]
}

func sameTensors(a, b []onnx.Tensor) bool {
	return slices.EqualFunc(a, b, func(x, y onnx.Tensor) bool { return x.Shape.Equal(y.Shape) && bytes.Equal(x.Data.Bytes, y.Data.Bytes) })
}

// tolerance is how far two numbers of a type may be apart, as a share of the larger one.
var tolerance = map[tensor.DType]float64{tensor.FP64: 1e-6, tensor.FP32: 1e-3, tensor.FP16: 2e-2, tensor.BF16: 5e-2}

// equalLanes reports whether two lanes are equal but for rounding.
func equalLanes(a, b []byte, dtype tensor.DType) bool {
	share, fractions := tolerance[dtype]
	if !fractions || len(a) != len(b) {
		return bytes.Equal(a, b)
	}
	_, _, differ := Difference(b, a, dtype, share)
	return !differ
}

// typicalShare is which part of a typical number of a tensor its small numbers may be off
// by, of what is allowed: they are what is left of larger ones, whose rounding they have.
const typicalShare = 0.3

// Difference compares two tensors of one size, element by element, so that large numbers in
// one place hide nothing in another. Elements may be apart by a share of the larger one and
// a smaller part of the tensor's median. It returns the first two that are further apart.
func Difference(got, want []byte, dtype tensor.DType, share float64) (g, w float64, differ bool) {
	others := slices.Collect(values(want, dtype))
	slack, at := share*typicalShare*median(others), 0
	for g := range values(got, dtype) {
		w := others[at]
		at++
		if g == w || math.IsNaN(g) && math.IsNaN(w) {
			continue
		}
		most := max(math.Abs(g), math.Abs(w))
		if off := math.Abs(g - w); math.IsInf(most, 0) || !(off <= share*most+slack) {
			return g, w, true
		}
	}
	return 0, 0, false
}

// median is that of the sizes of numbers, of those that are not 0 and finite.
func median(numbers []float64) float64 {
	const most = 4096 // are looked at
	sizes := make([]float64, 0, min(len(numbers), most))
	for at := 0; at < len(numbers); at += 1 + len(numbers)/most {
		if size := math.Abs(numbers[at]); size > 0 && !math.IsInf(size, 0) {
			sizes = append(sizes, size)
		}
	}
	if len(sizes) == 0 {
		return 0
	}
	slices.Sort(sizes)
	return sizes[(len(sizes)-1)/2]
}

// values are the numbers of a tensor of fractions; others have none.
func values(data []byte, dtype tensor.DType) func(yield func(float64) bool) {
	size := dtype.Size()
	return func(yield func(float64) bool) {
		if _, fractions := tolerance[dtype]; !fractions {
			return
		}
		for ; len(data) >= size; data = data[size:] {
			var v float64
			switch dtype {
			case tensor.FP64:
				v = math.Float64frombits(binary.NativeEndian.Uint64(data))
			case tensor.FP32:
				v = float64(math.Float32frombits(binary.NativeEndian.Uint32(data)))
			case tensor.FP16:
				v = float64(tensor.Widen(binary.NativeEndian.Uint16(data)))
			default:
				v = float64(math.Float32frombits(uint32(binary.NativeEndian.Uint16(data)) << 16))
			}
			if !yield(v) {
				return
			}
		}
	}
}
