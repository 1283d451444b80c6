package onnx

import (
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

// extent is what is known of a tensor when inputs are empty. The extents are ordered: what is
// made of several tensors is at least the last of theirs.
type extent uint8

const (
	filled  extent = iota // nothing of it depends on the lengths of the empty inputs
	total                 // it holds extents of grown tensors, as they are: none is 0
	counted               // it holds numbers that depend on the lengths, of which some may be 0
	grown                 // it is not empty, but its extents depend on the lengths
	unsure                // it may be empty
	empty
)

// keepsEmpty are operators whose output is empty if an input is, and else is not: they work
// element by element, or only arrange the elements in another way.
var keepsEmpty = strings.Fields(`Abs Add And Cast Clip Cos CumSum Div Dropout Elu Equal Erf Exp Flatten Gelu Greater
	GreaterOrEqual HardSigmoid HardSwish Identity IsNaN LayerNormalization LeakyRelu Less LessOrEqual Log Max Min Mod Mul
	Neg Not Or Pow PRelu Reciprocal Relu Round Selu Sigmoid Sign Sin Softmax Softplus Sqrt Squeeze Sub Sum Tanh Transpose
	Unsqueeze Where Xor`)

// keepsNumbers are those of them that also leave the elements as they are.
var keepsNumbers = strings.Fields("Cast Flatten Identity Squeeze Transpose Unsqueeze")

// keepsFilled are operators whose output is not empty if no input is. Of an empty input it is
// not known.
var keepsFilled = strings.Fields(`Einsum Gemm GRU LSTM MatMul ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum RNN`)

// sizedBy are operators of which an input has extents of the output, and its position.
var sizedBy = map[string]int{"ConstantOfShape": 0, "Expand": 1, "Tile": 1}

// mostVisits is how many nodes are looked at, so that it takes well under a second.
const mostVisits = 1 << 18

// EmptyReaches reports whether any of these inputs of the graph, if they have an extent of 0,
// gets to an operator that ends the process with such a tensor, and returns which one it is. A
// Concat with something else ends the emptiness. Never is the answer only where every operator
// on the way is understood: an extent that is computed from the length of an empty input may
// be 0. The values or the extents of the inputs lengths depend on those lengths, too.
func (s *Signature) EmptyReaches(inputs, lengths []string) (operator string, reach Reach) {
	switch operator = s.EndsOnEmpty(); {
	case operator == "" || len(inputs) == 0:
		return "", Never
	case s.Nodes == nil: // the file does not say
		return operator, Possible
	}
	w := walk{left: mostVisits}
	f := emptyFlow{extents: map[string]extent{}, walk: &w}
	for _, name := range lengths {
		f.extents[name] = grown
	}
	for _, name := range inputs {
		f.extents[name] = empty
	}
	f.follow(s.Nodes)
	if w.lost {
		f.note(operator, Possible)
	}
	return f.operator, f.reach
}

// emptyFlow follows empty tensors through a graph.
type emptyFlow struct {
	extents  map[string]extent // of tensors, by their names; those that are not filled
	outer    *emptyFlow        // of the graph around it, whose tensors a branch sees; nil if none
	walk     *walk
	operator string
	reach    Reach
}

// walk is what the flows through a graph and its branches share.
type walk struct {
	left int  // nodes that may still be looked at
	lost bool // there were too many, or they are not sorted, so nothing is known
}

// of is what is known of a tensor.
func (f *emptyFlow) of(name string) extent {
	for ; f != nil; f = f.outer {
		if e, is := f.extents[name]; is {
			return e
		}
	}
	return filled
}

// input is what is known of an input of a node, which it may leave out.
func (f *emptyFlow) input(n *Node, at int) extent {
	if at >= len(n.Inputs) {
		return filled
	}
	return f.of(n.Inputs[at])
}

// visit counts a node, and reports whether it may be looked at.
func (w *walk) visit() bool {
	w.left--
	w.lost = w.lost || w.left < 0
	return !w.lost
}

func (f *emptyFlow) follow(nodes []Node) {
	read := map[string]bool{} // names of the inputs of the nodes so far
	for i := range nodes {
		n := &nodes[i]
		if !f.walk.visit() {
			return
		}
		worst := filled
		for _, name := range n.Inputs {
			worst = max(worst, f.of(name))
		}
		var out extent
		if len(n.Bodies) > 0 {
			out = f.bodies(n, worst, read)
		} else {
			out = f.output(n, worst)
		}
		f.check(n)
		for _, name := range n.Inputs {
			read[name] = true
		}
		for _, name := range n.Outputs {
			if name == "" || out == filled {
				continue
			}
			f.extents[name] = out
			if read[name] { // a node before was looked at too early
				f.walk.lost = true
			}
		}
	}
}

// output is what is known of the outputs of a node.
func (f *emptyFlow) output(n *Node, worst extent) extent {
	if worst == filled {
		return filled
	}
	first, size := f.input(n, 0), f.input(n, 1)
	by, sized := sizedBy[n.Operator]
	switch {
	case n.Operator == "Shape" || n.Operator == "Size":
		return shapeOf(first)
	case n.Operator == "Concat" && worst >= unsure:
		least := worst
		for at := range n.Inputs {
			least = min(least, f.input(n, at))
		}
		return max(least, grown)
	case n.Operator == "Concat":
		return worst
	case sized && f.input(n, by) > total:
		return unsure
	case sized && f.input(n, by) == total:
		return max(f.input(n, 1-by), grown)
	case n.Operator == "Expand": // to an extent that is given
		return min(worst, unsure)
	case n.Operator == "Reshape" && size == filled: // it changes no number of elements
		return first
	case n.Operator == "Reshape":
		return max(first, grown)
	case n.Operator == "Slice" && worst == first && first <= counted && f.filledAfter(n): // some of the numbers
		return first
	case n.Operator == "Gather" && size == filled:
		return min(first, unsure)
	case n.Operator == "Gather" && worst <= grown:
		return max(worst, counted)
	case slices.Contains(keepsEmpty, n.Operator) && worst == total && !slices.Contains(keepsNumbers, n.Operator):
		return counted
	case slices.Contains(keepsEmpty, n.Operator):
		return worst
	case slices.Contains(keepsFilled, n.Operator) && worst <= grown:
		return max(worst, counted)
	default:
		return unsure
	}
}

// shapeOf is what is known of the shape of a tensor.
func shapeOf(tensor extent) extent {
	switch {
	case tensor >= unsure:
		return counted
	case tensor == grown:
		return total
	}
	return filled
}

// filledAfter reports whether the inputs after the first are filled.
func (f *emptyFlow) filledAfter(n *Node) bool {
	for at := 1; at < len(n.Inputs); at++ {
		if f.input(n, at) > filled {
			return false
		}
	}
	return true
}

// check notes a node that ends the process, or may.
func (f *emptyFlow) check(n *Node) {
	if !slices.Contains(endsOnEmpty[:], n.Operator) {
		return
	}
	for at, name := range n.Inputs {
		e := f.of(name)
		switch {
		case e < unsure || n.Operator == "Einsum" && f.bears(n, at):
		case e == empty && len(n.Bodies) == 0 && (n.Operator == "GRU" && at == 0 || n.Operator == "Einsum"):
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

// bodies follows what a node does in graphs of its own, and returns what is known of its
// outputs. Branches of an If have no inputs, but see the tensors around them, and may not run.
// What the inputs of other graphs are called is not read, nor how often they run, so any of
// their tensors may be empty.
func (f *emptyFlow) bodies(n *Node, worst extent, read map[string]bool) extent {
	branches := n.Operator == "If" && !n.Called
	var ends string // an operator in them that may end the process
	for _, body := range n.Bodies {
		seen := f.look(body, read, &ends)
		if !branches {
			worst = max(worst, seen)
			continue
		}
		inner := emptyFlow{extents: map[string]extent{}, outer: f, walk: f.walk}
		inner.follow(body)
		if inner.operator != "" {
			f.note(inner.operator, Possible)
		}
		for _, e := range inner.extents {
			seen = max(seen, e)
		}
		worst = max(worst, seen)
	}
	switch {
	case worst == filled:
		return filled
	case branches: // with one of its branches
		return min(max(worst, grown), unsure)
	}
	if ends != "" {
		f.note(ends, Possible)
	}
	return unsure
}

// look returns the worst that is known of tensors around a body which have names that are in
// it. It notes in ends an operator that may end the process, and in read the names.
func (f *emptyFlow) look(body []Node, read map[string]bool, ends *string) (worst extent) {
	for i := range body {
		if !f.walk.visit() {
			return unsure
		}
		n := &body[i]
		if slices.Contains(endsOnEmpty[:], n.Operator) {
			*ends = n.Operator
		}
		for _, name := range n.Inputs {
			worst, read[name] = max(worst, f.of(name)), true
		}
		for _, inside := range n.Bodies {
			worst = max(worst, f.look(inside, read, ends))
		}
	}
	return worst
}

// bears reports whether an Einsum runs with an empty operand: one that it sums no products of,
// or the first of two, of which the second is filled. What others do depends on the order of
// their axes.
func (f *emptyFlow) bears(n *Node, operand int) bool {
	if len(n.Inputs) == 2 && operand == 0 && f.of(n.Inputs[1]) < unsure {
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
