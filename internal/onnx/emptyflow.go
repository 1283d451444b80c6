package onnx

import (
	"maps"
	"slices"
	"strings"
)

// Reach says whether an empty input gets to an operator that ends the process.
type Reach uint8

// The answers.
const (
	Never    Reach = iota
	Possible       // by operators whose outputs may be empty or not, or into one that may bear it
	Certain
)

// extent is what is known of a tensor when inputs are empty.
type extent uint8

const (
	filled  extent = iota // it is not empty by what is looked at
	counted               // it holds extents, one of which is 0
	unsure                // it may be empty
	empty
)

// keepsEmpty are operators whose output is empty if an input is: they work element by element,
// or only arrange the elements in another way. Of the others it is not known.
var keepsEmpty = strings.Fields(`Abs Add And Cast Clip Cos Div Dropout Elu Equal Erf Exp Flatten Gelu Greater
	GreaterOrEqual HardSigmoid HardSwish Identity IsNaN LayerNormalization LeakyRelu Less LessOrEqual Log Max Min Mod Mul
	Neg Not Or Pow PRelu Reciprocal Relu Round Selu Sigmoid Sign Sin Softmax Softplus Sqrt Squeeze Sub Sum Tanh Transpose
	Unsqueeze Where Xor`)

// sizedBy are operators of which an input has extents of the output, and its position.
var sizedBy = map[string]int{"ConstantOfShape": 0, "Expand": 1, "OneHot": 1, "Range": 1, "Slice": 2, "Split": 1, "Tile": 1, "TopK": 1}

// EmptyReaches reports whether any of these inputs of the graph, if they have an extent of 0,
// gets to an operator that ends the process with such a tensor, and returns which one it is. A
// Concat with something else ends the emptiness. Extents are followed as numbers, too, with
// which Range or Expand may make an empty tensor.
func (s *Signature) EmptyReaches(inputs []string) (operator string, reach Reach) {
	switch operator = s.EndsOnEmpty(); {
	case operator == "" || len(inputs) == 0:
		return "", Never
	case s.Nodes == nil: // the file does not say
		return operator, Possible
	}
	f := emptyFlow{extents: map[string]extent{}}
	for _, name := range inputs {
		f.extents[name] = empty
	}
	f.follow(s.Nodes)
	return f.operator, f.reach
}

// emptyFlow follows empty tensors through a graph, whose nodes are sorted as they run.
type emptyFlow struct {
	extents  map[string]extent // of tensors, by their names
	operator string
	reach    Reach
}

func (f *emptyFlow) follow(nodes []Node) {
	for i := range nodes {
		n := &nodes[i]
		worst := filled
		for _, name := range n.Inputs {
			worst = max(worst, f.extents[name])
		}
		var out extent
		switch {
		case len(n.Bodies) > 0:
			out = f.bodies(n, worst)
		case worst == filled:
			continue
		default:
			f.check(n)
			out = f.output(n, worst)
		}
		for _, name := range n.Outputs {
			f.extents[name] = out
		}
	}
}

// output is what is known of the outputs of a node whose inputs are not all filled.
func (f *emptyFlow) output(n *Node, worst extent) extent {
	of := func(at int) extent {
		if at >= len(n.Inputs) {
			return filled
		}
		return f.extents[n.Inputs[at]]
	}
	least := worst
	for at := range n.Inputs {
		least = min(least, of(at))
	}
	by, sized := sizedBy[n.Operator]
	switch {
	case n.Operator == "Shape" || n.Operator == "Size":
		if worst >= unsure {
			return counted
		}
		return filled
	case n.Operator == "Concat" && worst >= unsure && least < unsure:
		return filled
	case n.Operator == "Concat" && worst >= unsure:
		return least
	case sized && of(by) >= counted:
		return unsure
	case sized && of(0) == counted: // a part of numbers, or a range that begins with one
		return counted
	case n.Operator == "Reshape": // the shape that it gets changes no number of elements
		return of(0)
	case n.Operator == "NonZero" || n.Operator == "Compress":
		return unsure
	case worst == counted && n.Operator == "Add" && least == filled: // a length and what is new
		return filled
	case worst == counted:
		return counted
	case slices.Contains(keepsEmpty, n.Operator):
		return worst
	default:
		return unsure
	}
}

// check notes a node that ends the process, or may.
func (f *emptyFlow) check(n *Node) {
	if !slices.Contains(endsOnEmpty[:], n.Operator) {
		return
	}
	for at, name := range n.Inputs {
		e := f.extents[name]
		switch {
		case e < unsure || n.Operator == "Einsum" && f.bears(n, at):
		case e == empty && (n.Operator == "GRU" && at == 0 || n.Operator == "Einsum"):
			f.note(n.Operator, Certain)
		default:
			f.note(n.Operator, Possible)
		}
	}
}

func (f *emptyFlow) note(operator string, reach Reach) {
	if reach > f.reach {
		f.operator, f.reach = operator, reach
	}
}

// bodies follows what a node does in graphs of its own, which may not run. What their inputs are
// called is not read.
func (f *emptyFlow) bodies(n *Node, worst extent) extent {
	inner := emptyFlow{extents: maps.Clone(f.extents)}
	for _, body := range n.Bodies {
		inner.follow(body)
		if worst >= unsure {
			inner.note(endsIn(body), Possible)
		}
		for i := range body {
			for _, name := range slices.Concat(body[i].Inputs, body[i].Outputs) {
				worst = max(worst, inner.extents[name])
			}
		}
	}
	if inner.operator != "" {
		f.note(inner.operator, Possible)
	}
	return min(worst, unsure)
}

// endsIn returns an operator of the nodes that may end the process, or "".
func endsIn(nodes []Node) string {
	for i := range nodes {
		if slices.Contains(endsOnEmpty[:], nodes[i].Operator) {
			return nodes[i].Operator
		}
		for _, body := range nodes[i].Bodies {
			if operator := endsIn(body); operator != "" {
				return operator
			}
		}
	}
	return ""
}

// bears reports whether an Einsum runs with an empty operand: one that it sums no products of,
// or the first of two, of which the second is filled. What others do depends on the order of
// their axes.
func (f *emptyFlow) bears(n *Node, operand int) bool {
	if len(n.Inputs) == 2 && operand == 0 && f.extents[n.Inputs[1]] < unsure {
		return true
	}
	operands, result, given := strings.Cut(strings.ReplaceAll(n.Equation, " ", ""), "->")
	terms := strings.Split(operands, ",")
	if operand >= len(terms) {
		return false
	}
	others := strings.Join(slices.Delete(slices.Clone(terms), operand, operand+1), "")
	return !strings.ContainsFunc(terms[operand], func(label rune) bool {
		return label != '.' && strings.ContainsRune(others, label) && (!given || !strings.ContainsRune(result, label))
	})
}
