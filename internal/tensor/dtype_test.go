package tensor

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDType(t *testing.T) {
	tests := []struct {
		dtype  DType
		number uint8 // TRITONSERVER_DataType
		name   string
		config string
		size   int
	}{
		{Invalid, 0, "INVALID", "TYPE_INVALID", 0},
		{Bool, 1, "BOOL", "TYPE_BOOL", 1},
		{Uint8, 2, "UINT8", "TYPE_UINT8", 1},
		{Uint16, 3, "UINT16", "TYPE_UINT16", 2},
		{Uint32, 4, "UINT32", "TYPE_UINT32", 4},
		{Uint64, 5, "UINT64", "TYPE_UINT64", 8},
		{Int8, 6, "INT8", "TYPE_INT8", 1},
		{Int16, 7, "INT16", "TYPE_INT16", 2},
		{Int32, 8, "INT32", "TYPE_INT32", 4},
		{Int64, 9, "INT64", "TYPE_INT64", 8},
		{FP16, 10, "FP16", "TYPE_FP16", 2},
		{FP32, 11, "FP32", "TYPE_FP32", 4},
		{FP64, 12, "FP64", "TYPE_FP64", 8},
		{Bytes, 13, "BYTES", "TYPE_STRING", 0},
		{BF16, 14, "BF16", "TYPE_BF16", 2},
	}
	require.Len(t, tests, len(dtypes), "a type has no row here")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.number, uint8(tt.dtype))
			require.Equal(t, tt.name, tt.dtype.String())
			require.Equal(t, tt.config, tt.dtype.ConfigName())
			require.Equal(t, tt.size, tt.dtype.Size())
			if tt.dtype == Invalid {
				return
			}
			for _, name := range []string{tt.name, tt.config} {
				got, err := ParseDType(name)
				require.NoError(t, err)
				require.Equal(t, tt.dtype, got)
			}
		})
	}
}

func TestDTypeOutOfRange(t *testing.T) {
	beyond := DType(len(dtypes))
	require.Equal(t, "DType(15)", beyond.String())
	require.Zero(t, beyond.Size())
}

func TestParseDTypeRejects(t *testing.T) {
	for _, name := range []string{"", "TYPE_", "FP8", "TYPE_FP33", "fp32", "TYPE_INVALID", "INVALID", " FP32", "TYPE_TYPE_FP32"} {
		_, err := ParseDType(name)
		require.ErrorContains(t, err, "want one such as TYPE_FP32", "%q", name)
	}
}
