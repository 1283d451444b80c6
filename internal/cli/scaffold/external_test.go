package scaffold

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

func field(number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
}

// external is a model with an initializer in a file.
func external(location string) []byte {
	entry := append(field(entryKey, []byte("location")), field(entryValue, []byte(location))...)
	tensor := append(field(8, []byte("w")), field(tensorExternal, entry)...)
	graph := append(field(graphInitializer, tensor), field(graphInitializer, tensor)...)
	return append(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 8), field(modelGraph, graph)...)
}

func TestExternalFiles(t *testing.T) {
	files, err := externalFiles(external("weights/model.data"))
	require.NoError(t, err)
	require.Equal(t, []string{"weights/model.data"}, files)
	_, err = externalFiles(external("../model.data"))
	require.ErrorContains(t, err, "in the folder of the model")
	_, err = externalFiles([]byte{0xff})
	require.Error(t, err)
}
