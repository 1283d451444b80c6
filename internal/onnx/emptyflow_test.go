package onnx

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// graph reads nodes of the form "Op a b -> c", one a line; an Einsum has its equation after a
// colon, and indented lines are the body of the node before them.
func graph(text string) (nodes []Node) {
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		text, equation, _ := strings.Cut(strings.TrimSpace(line), ":")
		before, after, _ := strings.Cut(strings.ReplaceAll(text, " .", ` ""`), "->")
		fields := strings.Fields(before)
		n := Node{Operator: fields[0], Inputs: names(fields[1:]), Outputs: names(strings.Fields(after)), Equation: strings.TrimSpace(equation)}
		if last := len(nodes) - 1; strings.HasPrefix(line, " ") {
			if nodes[last].Bodies == nil {
				nodes[last].Bodies = make([][]Node, 1)
			}
			nodes[last].Bodies[0] = append(nodes[last].Bodies[0], n)
		} else {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// names takes the quotes from those that are left out.
func names(written []string) []string {
	for i, name := range written {
		written[i] = strings.Trim(name, `"`)
	}
	return written
}

// TestEmptyReaches: an empty state is followed to the operators that end the process on one.
func TestEmptyReaches(t *testing.T) {
	for _, tt := range []struct {
		name, graph string
		want        Reach
	}{
		{"at once", "GRU past w r -> y", Certain},
		{"rearranged", "Transpose past -> t\nMul t scale -> u\nGRU u w r -> y", Certain},
		{"after a Concat", "Concat past x -> all\nTranspose all -> t\nGRU t w r -> y", Never},
		{"after a Concat of empty ones", "Concat past value -> all\nGRU all w r -> y", Certain},
		{"after a Concat of one", "Concat past -> all\nGRU all w r -> y", Certain},
		{"another input", "Concat past x -> present\nGRU x w r -> y", Never},
		{"by something unknown", "MatMul past w -> k\nGRU k w r -> y", Possible},
		{"as the first state of a GRU", "GRU x w r b . past -> y", Possible},
		{"time of an LSTM", "LSTM past w r -> y", Possible},
		{"keys of an attention", "Einsum q past -> scores: bthd,bshd->bhts", Certain},
		{"keys and new ones", "Concat past k -> all\nEinsum q all -> scores: bthd,bshd->bhts\nSoftmax scores -> s\nEinsum s all -> y: bhts,bshd->bthd", Never},
		{"a projection", "Einsum past w -> k: btc,cd->btd\nConcat k x -> all\nEinsum q all -> y: btd,bsd->bts", Never},
		{"one operand", "Einsum past -> y: btc->bct", Never},
		{"no sum", "Einsum x past -> y: bt,bt->bt", Never},
		{"a sum that is not written", "Einsum x past -> y: bct,bdt", Certain},
		{"positions", "Shape past -> dims\nGather dims one -> before\nAdd before new -> all\nRange before all step -> positions\nEinsum positions freq -> angles: i,j->ij\nEinsum angles w -> y: ij,jk->ik", Never},
		{"a range of what was before", "Shape past -> dims\nGather dims one -> before\nRange zero before step -> positions\nEinsum w positions -> y: ij,j->i", Possible},
		{"expanded to its shape", "Shape past -> dims\nExpand w dims -> e\nGRU e w r -> y", Possible},
		{"a table cut at the length", "Shape past -> dims\nSlice table dims all -> rows\nEinsum q rows -> y: tc,sc->ts", Possible},
		{"dims for Reshape", "Shape past -> dims\nReshape x dims -> r\nEinsum q r -> y: tc,sc->ts", Never},
		{"the size of it", "Size past -> n\nConstantOfShape n -> zeros\nGRU zeros w r -> y", Possible},
		{"in a branch", "If is_first -> y\n  GRU past w r -> z", Possible},
		{"out of a branch", "If is_first -> y\n  Identity past -> z\nGRU y w r -> h", Possible},
		{"into a body", "Loop n go past -> y\n  GRU in w r -> h", Possible},
		{"a body without it", "Loop n go x -> y\n  GRU in w r -> h", Never},
		{"an output left out", "Dropout past -> . d\nClip x . high -> c\nGRU c w r -> y", Never},
		{"left out in a branch", "If is_first -> y\n  Dropout past -> . d\n  Clip x . high -> c\n  GRU c w r -> z", Never},
		{"unsorted", "GRU t w r -> y\nTranspose u -> t\nIdentity past -> u", Possible},
		{"unsorted around a branch", "If is_first -> y\n  GRU u w r -> z\nIdentity past -> u", Possible},
		{"the last of x", "Shape past -> dims\nGather dims one -> before\nShape x -> xd\nGather xd one -> time\nSub time before -> start\nSlice x start end one -> s\nGRU s w r -> y", Possible},
		{"a length and back", "Shape past -> dims\nGather dims one -> before\nAdd before time -> all\nSub all time -> end\nSlice x zero end one -> s\nGRU s w r -> y", Possible},
		{"the length of all and back", "Concat past x -> all\nShape all -> dims\nGather dims one -> n\nSub n time -> end\nSlice x zero end one -> s\nGRU s w r -> y", Possible},
		{"the past cut out of all", "Concat past x -> all\nNeg time -> end\nSlice all zero end one -> s\nGRU s w r -> y", Possible},
		{"the past split off", "Concat past x -> all\nSplit all parts -> s rest\nGRU s w r -> y", Possible},
		{"a range of all", "Concat past x -> all\nShape all -> dims\nGather dims one -> n\nRange time n step -> r\nGather x r -> s\nGRU s w r -> y", Possible},
		{"as long as all", "Concat past x -> all\nShape all -> dims\nSlice dims one two -> n\nConcat b n c -> wide\nExpand x wide -> s\nTranspose s -> t\nGRU t w r -> y", Never},
		{"padded by a length", "Shape past -> dims\nSub dims xd -> pads\nPad x pads -> s\nGRU s w r -> y", Possible},
		{"resized to a length", "Shape past -> dims\nResize x . . dims -> s\nGRU s w r -> y", Possible},
		{"rows by a length", "Shape past -> dims\nGather dims one -> n\nLoop n go -> rows\n  Identity x -> row\nGRU rows w r -> y", Possible},
		{"a length used for no extent", "Shape past -> dims\nGather dims one -> n\nCast n -> f\nAdd x f -> s\nGRU s w r -> y", Never},
		{"projected after a Concat", "Concat past x -> all\nMatMul all w -> p\nEinsum q p -> s: bthd,bshd->bhts", Never},
		{"cut at a length that is given", "Slice x zero length -> s\nGRU s w r -> y", Possible},
		{"moved by a length that is given", "Cast length -> f\nAdd x f -> s\nGRU s w r -> y", Never},
		{"left out", "Clip past . -> c\nGRU c w r -> y", Certain},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &Signature{Operators: map[string]int{"Einsum": 1}, Nodes: graph(tt.graph)}
			operator, got := s.EmptyReaches([]string{"past", "value"}, []string{"length"})
			if got != tt.want || (operator == "") != (got == Never) {
				t.Fatalf("got %d, %q: want %d", got, operator, tt.want)
			}
			if operator, got := s.EmptyReaches(nil, []string{"length"}); got != Never {
				t.Fatalf("without an empty input: %d, %q", got, operator)
			}
		})
	}
	if operator, got := (&Signature{Operators: map[string]int{"LSTM": 1}}).EmptyReaches([]string{"past"}, nil); got != Possible || operator != "LSTM" {
		t.Errorf("without nodes: %d, %q", got, operator)
	}
	if operator, got := (&Signature{Unread: true}).EmptyReaches([]string{"past"}, nil); got != Possible || operator == "" {
		t.Errorf("with operators that could not be read: %d, %q", got, operator)
	}
	if operator, got := (&Signature{Operators: map[string]int{"Add": 1}, Nodes: graph("GRU past")}).EmptyReaches([]string{"past"}, nil); got != Never {
		t.Errorf("without such an operator: %d, %q", got, operator)
	}
}

// TestFunctionsAreFollowed: what a function or a body does with a length is not known, nor what
// its inputs are called, and one may call itself.
func TestFunctionsAreFollowed(t *testing.T) {
	inner := Node{Operator: "Inner", Inputs: []string{"a"}, Outputs: []string{"b"}, Bodies: [][]Node{graph("GRU t w r -> b")}, Called: true}
	outer := Node{Operator: "If", Inputs: []string{"past"}, Outputs: []string{"y"}, Bodies: [][]Node{{inner}}, Called: true}
	endless := Node{Operator: "Endless", Inputs: []string{"x"}, Outputs: []string{"y"}, Bodies: [][]Node{make([]Node, 1)}, Called: true}
	endless.Bodies[0][0] = endless
	sized := Node{Operator: "Rows", Inputs: []string{"dims", "x"}, Outputs: []string{"s"}, Bodies: [][]Node{graph("Slice v zero n -> o")}, Called: true}
	for name, nodes := range map[string][]Node{
		"nested":   {outer},
		"endless":  {endless},
		"a length": append(graph("Shape past -> dims"), sized, graph("GRU s w r -> y")[0]),
	} {
		s := &Signature{Operators: map[string]int{"GRU": 1}, Nodes: nodes}
		if _, got := s.EmptyReaches([]string{"past"}, nil); got != Possible {
			t.Errorf("%s: got %d", name, got)
		}
	}
}

// TestManyNodes: the time that a large graph takes grows no faster than it, and has a limit.
func TestManyNodes(t *testing.T) {
	var nodes, body []Node
	for i := range 16_000 {
		last, next := strconv.Itoa(i), strconv.Itoa(i+1)
		nodes = append(nodes, Node{Operator: "Add", Inputs: []string{last, "past"}, Outputs: []string{next}},
			Node{Operator: "If", Inputs: []string{"c"}, Outputs: []string{"y" + next}, Bodies: [][]Node{graph("Identity x -> z")}})
		body = append(body, Node{Operator: "Add", Inputs: []string{"u", "v"}, Outputs: []string{next}})
	}
	calls := make([]Node, len(body))
	for i := range calls {
		calls[i] = Node{Operator: "F", Inputs: []string{"past"}, Bodies: [][]Node{body}, Called: true}
	}
	for name, tt := range map[string]struct {
		nodes []Node
		want  Reach
	}{"branches": {nodes, Never}, "calls": {calls, Possible}} {
		begun := time.Now()
		_, got := (&Signature{Operators: map[string]int{"GRU": 1}, Nodes: tt.nodes}).EmptyReaches([]string{"past"}, nil)
		if took := time.Since(begun); got != tt.want || took > 2*time.Second {
			t.Errorf("%s: got %d after %v", name, got, took)
		}
	}
}
