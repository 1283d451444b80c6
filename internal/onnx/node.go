package onnx

// Node is an operator in a model's graph, as far as it matters here.
type Node struct {
	Operator        string   // its op_type; domains are left out
	Inputs, Outputs []string // the names of tensors, "" for one that is left out
	Equation        string   // of an Einsum
	// Bodies are the graphs that it runs: the branches of an If, the body of a Loop or of a
	// function of the model.
	Bodies [][]Node
	Called bool // some of Bodies are of functions with this name
}
