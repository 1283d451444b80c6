package saved

import (
	"encoding/binary"
	"math"

	"tritonstateful/internal/statestore"
	"tritonstateful/internal/tensor"
)

// stateOf describes a tensor and what its elements are.
func stateOf(t *statestore.RecordTensor) State {
	s := State{Name: t.Name, Datatype: t.DType.String(), Shape: append(tensor.Shape{}, t.Shape...), Bytes: len(t.Data)}
	low, high, sum, count := math.Inf(1), math.Inf(-1), 0.0, 0
	for data, size := t.Data, t.DType.Size(); len(data) > 0; data = data[size:] {
		f := element(data[:size], t.DType)
		if math.IsNaN(f) || math.IsInf(f, 0) {
			s.NotFinite++
			continue
		}
		low, high, sum, count = min(low, f), max(high, f), sum+f, count+1
	}
	if count > 0 {
		mean := sum / float64(count)
		s.Min, s.Max, s.Mean = &low, &high, &mean
	}
	return s
}

// element returns an element as a number; integers beyond 2^53 are rounded.
func element(data []byte, dtype tensor.DType) float64 {
	little := binary.LittleEndian
	switch dtype {
	case tensor.FP16, tensor.BF16, tensor.FP32, tensor.FP64:
		return tensor.Float(data, dtype)
	case tensor.Int8:
		return float64(int8(data[0]))
	case tensor.Int16:
		return float64(int16(little.Uint16(data)))
	case tensor.Int32:
		return float64(int32(little.Uint32(data)))
	case tensor.Int64:
		return float64(int64(little.Uint64(data)))
	case tensor.Uint16:
		return float64(little.Uint16(data))
	case tensor.Uint32:
		return float64(little.Uint32(data))
	case tensor.Uint64:
		return float64(little.Uint64(data))
	default: // BOOL and UINT8
		return float64(data[0])
	}
}
