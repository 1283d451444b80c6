package onnx

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTensorName(t *testing.T) {
	infos := []TensorInfo{{Name: "Input"}, {Name: "State"}, {Name: "STATE"}}
	require.Equal(t, 0, TensorName("Input", infos))
	require.Equal(t, 0, TensorName("INPUT", infos))
	require.Equal(t, 2, TensorName("STATE", infos), "the exact name wins")
	require.Equal(t, -1, TensorName("state", infos), "two could be meant")
	require.Equal(t, -1, TensorName("Other", infos))
	require.Equal(t, "none", Names(nil))
}
