package onnx

import (
	"fmt"
	"strings"

	"tritonstateful/internal/tensor"
)

// Signature is what a model file says of its tensors.
type Signature struct {
	// Inputs in the model's order; initializers that are also graph inputs
	// stand after the plain ones, marked Optional.
	Inputs  []TensorInfo
	Outputs []TensorInfo
	// Description is the graph's doc string.
	Description string
	// Operators is how often each operator is written in the model file, by its
	// op_type, also inside of subgraphs and functions; nil where the file does not
	// tell (ORT format).
	Operators map[string]int
	// Unread: the model file could not be read for its operators, so it may have any.
	Unread bool
	// Nodes are those of the graph, in the order of the file; nil where Operators is, for a
	// model without an operator of which EndsOnEmpty tells, and where names of tensors are
	// too long to be read.
	Nodes []Node
}

// MayHave reports whether the model has the operator, by its op_type, or it is not known.
func (s *Signature) MayHave(operator string) bool {
	return s.Unread || s.Operators[operator] > 0
}

// TensorInfo describes one tensor of a model.
type TensorInfo struct {
	Name  string
	DType tensor.DType
	// Dims has tensor.Dynamic for every axis that is not fixed.
	Dims tensor.Shape
	// Symbols has the name of each dynamic axis, "" where it has none and for
	// fixed ones. len(Symbols) == len(Dims).
	Symbols []string
	// Optional: the model has a default for this input.
	Optional bool
}

// IOTensor is the name and type of an input or output as the server knows it.
type IOTensor struct {
	Name     string
	DType    tensor.DType
	Optional bool // an input that a request may leave out
}

// TensorName finds name among the names of the model's tensors: exactly, or
// else without regard to case if only one name matches so.
func TensorName(name string, infos []TensorInfo) int {
	found := -1
	for i := range infos {
		if infos[i].Name == name {
			return i
		}
		if strings.EqualFold(infos[i].Name, name) {
			if found >= 0 {
				return -1
			}
			found = i
		}
	}
	return found
}

// Names lists the tensors for an error message.
func Names(infos []TensorInfo) string {
	if len(infos) == 0 {
		return "none"
	}
	quoted := make([]string, len(infos))
	for i := range infos {
		quoted[i] = fmt.Sprintf("%q", infos[i].Name)
	}
	return strings.Join(quoted, ", ")
}
