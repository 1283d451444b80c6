package statestore

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/tensor"
)

// FuzzParse reads damaged and invented values, with and without the right length and
// checksum, which hide what comes after them. A value that is accepted is written again
// and must be equal but for the zeros.
func FuzzParse(f *testing.F) {
	var w Writer
	f.Add(bytes.Clone(sealed(f, &w, testHead, nil)), true)
	f.Add(bytes.Clone(sealed(f, &w, testHead, []uint64{1, 2}, someTensors()...)), true)
	f.Add(bytes.Clone(sealed(f, &w, testHead, []uint64{1, 2}, someTensors()...)), false)
	f.Add([]byte("TSST"), false)
	f.Fuzz(func(t *testing.T, value []byte, fit bool) {
		if fit && len(value) >= headSize {
			little.PutUint64(value[lengthAt:], uint64(len(value)-headSize))
			reseal(value)
		}
		record, err := Parse(value)
		if err != nil {
			return
		}
		var w Writer
		var tensors []Tensor
		for _, tensor := range record.Tensors {
			tensors = append(tensors, tensor.Tensor)
		}
		require.NoError(t, w.Begin(record.Counters, tensors))
		for i, tensor := range record.Tensors {
			copy(w.Tensor(i), tensor.Data)
		}
		again := w.Seal(record.Head)
		require.Len(t, again, len(value))
		same, err := Parse(again)
		require.NoError(t, err)
		require.Equal(t, record, same)
	})
}

// FuzzRoundTrip writes values of any shape and reads them.
func FuzzRoundTrip(f *testing.F) {
	f.Add(uint64(1), uint64(2), int64(3), "h", uint8(tensor.FP32), []byte{1, 2, 3}, uint8(2))
	f.Add(uint64(1<<63), uint64(0), int64(-1), "", uint8(tensor.Bool), []byte{}, uint8(0))
	f.Fuzz(func(t *testing.T, epoch, step uint64, saved int64, name string, dtype uint8, extents []byte, count uint8) {
		var shape tensor.Shape
		for _, extent := range extents[:min(len(extents), 5)] {
			shape = append(shape, int64(extent%8))
		}
		counters := make([]uint64, count%4)
		var tensors []Tensor
		for i := range count % 8 {
			counters = append(counters, uint64(i)*epoch)
			tensors = append(tensors, Tensor{name, tensor.DType(dtype + i), shape})
		}
		var w Writer
		if w.Begin(counters, tensors) != nil {
			return // a type without a size, or a name that is too long
		}
		for i := range tensors {
			for j := range w.Tensor(i) {
				w.Tensor(i)[j] = byte(step) + byte(j)
			}
		}
		head := Head{Epoch: epoch, Step: step, Saved: time.Unix(0, saved)}
		record, err := Parse(w.Seal(head))
		require.NoError(t, err)
		require.Equal(t, head, record.Head)
		require.ElementsMatch(t, counters, record.Counters)
		for i, got := range record.Tensors {
			require.Equal(t, name, got.Name)
			require.Equal(t, tensors[i].DType, got.DType)
			require.True(t, got.Shape.Equal(shape))
			require.Equal(t, w.Tensor(i), got.Data)
		}
	})
}
