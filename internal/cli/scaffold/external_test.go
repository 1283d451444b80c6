package scaffold

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

func field(number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
}

// weights is a tensor whose data is in a file.
func weights(location string) []byte {
	entry := append(field(entryKey, []byte("location")), field(entryValue, []byte(location))...)
	return append(field(8, []byte("w")), field(13, entry)...)
}

// external is a model with this graph.
func external(graph []byte) []byte {
	return append(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 8), field(7, graph)...)
}

// TestExternalFiles: weights of the graph, of the branches of its nodes, in constants, and in sparse tensors.
func TestExternalFiles(t *testing.T) {
	initializer := func(location string) []byte { return field(5, weights(location)) }
	branch := field(1, field(5, field(6, initializer("branch.data"))))
	constant := field(1, field(5, field(5, weights("constant.data"))))
	sparse := field(15, append(field(1, weights("values.data")), field(2, weights("indices.data"))...))
	model := external(slices.Concat(initializer("weights/model.data"), initializer("weights/model.data"), branch, constant, sparse))
	function := field(25, field(7, field(5, field(5, weights("function.data")))))
	files, err := externalFiles(append(model, function...))
	require.NoError(t, err)
	require.Equal(t, []string{"branch.data", "constant.data", "function.data", "indices.data", "values.data", "weights/model.data"}, files)
	_, err = externalFiles(external(initializer("../model.data")))
	require.ErrorContains(t, err, "in the folder of the model")
	_, err = externalFiles([]byte{0xff})
	require.Error(t, err)
}
