package onnxfile

import "tritonstateful/internal/onnx"

// content is what is kept of a message while its parent is read. Which fields it has depends
// on the kind of the message.
type content struct {
	node      onnx.Node                // of a node
	nodes     []onnx.Node              // of a model, a graph, a function
	bodies    [][]onnx.Node            // the graphs of an attribute
	name      string                   // of an attribute, a function
	text      string                   // of an attribute
	functions map[string][][]onnx.Node // of a model: the bodies of those with a name, in any domain
	unnamed   bool                     // a name in it is too long to be kept, of a tensor or a function
}

// setText keeps a string of the message. The last one counts, as in protobuf, but for the
// names of tensors, of which there are several.
func (c *content) setText(k kind, text string) {
	switch k {
	case opType:
		c.node.Operator = text
	case inputName:
		c.node.Inputs = append(c.node.Inputs, text)
	case outputName:
		c.node.Outputs = append(c.node.Outputs, text)
	case attributeText:
		c.text = text
	default:
		c.name = text
	}
}

// add keeps what is in a message of the kind inside, which is part of one of the kind k.
func (c *content) add(k, inside kind, part *content) {
	c.unnamed = c.unnamed || part.unnamed
	switch {
	case inside == node:
		c.nodes = append(c.nodes, part.node)
	case inside == attribute && part.name == "equation":
		c.node.Equation = part.text
	case inside == attribute:
		c.node.Bodies = append(c.node.Bodies, part.bodies...)
	case inside == function:
		if c.functions == nil {
			c.functions = map[string][][]onnx.Node{}
		}
		c.functions[part.name] = append(c.functions[part.name], part.nodes)
	case k == attribute:
		c.bodies = append(c.bodies, part.nodes)
	default:
		c.nodes = append(c.nodes, part.nodes...)
	}
}

// link gives all nodes of a model that call functions of it their bodies, also in functions.
// Functions that call themselves give nodes without an end.
func (c *content) link() {
	c.callFunctions(c.nodes)
	for _, bodies := range c.functions {
		for _, body := range bodies {
			c.callFunctions(body)
		}
	}
}

// callFunctions gives those of these nodes and of their graphs that call a function its body.
func (c *content) callFunctions(nodes []onnx.Node) {
	for i := range nodes {
		for _, body := range nodes[i].Bodies {
			c.callFunctions(body)
		}
		if bodies, is := c.functions[nodes[i].Operator]; is {
			nodes[i].Bodies, nodes[i].Called = append(nodes[i].Bodies, bodies...), true
		}
	}
}
