package onnx

import (
	"strings"
	"testing"
)

// graph reads nodes of the form "Op a b -> c", one a line; an Einsum has its equation after a
// colon, and indented lines are the body of the node before them.
func graph(text string) (nodes []Node) {
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		text, equation, _ := strings.Cut(strings.TrimSpace(line), ":")
		before, after, _ := strings.Cut(text, "->")
		fields := strings.Fields(before)
		n := Node{Operator: fields[0], Inputs: fields[1:], Outputs: strings.Fields(after), Equation: strings.TrimSpace(equation)}
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
		{"a table cut at the length", "Shape past -> dims\nSlice table dims all -> rows\nEinsum q rows -> y: tc,sc->ts", Never},
		{"dims for Reshape", "Shape past -> dims\nReshape x dims -> r\nEinsum q r -> y: tc,sc->ts", Never},
		{"the size of it", "Size past -> n\nConstantOfShape n -> zeros\nGRU zeros w r -> y", Possible},
		{"in a branch", "If is_first -> y\n  GRU past w r -> z", Possible},
		{"out of a branch", "If is_first -> y\n  Identity past -> z\nGRU y w r -> h", Possible},
		{"into a body", "Loop n go past -> y\n  GRU in w r -> h", Possible},
		{"a body without it", "Loop n go x -> y\n  GRU in w r -> h", Never},
		{"left out", "Clip past . -> c\nGRU c w r -> y", Certain},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &Signature{Operators: map[string]int{"Einsum": 1}, Nodes: graph(tt.graph)}
			operator, got := s.EmptyReaches([]string{"past", "value"})
			if got != tt.want || (operator == "") != (got == Never) {
				t.Fatalf("got %d, %q: want %d", got, operator, tt.want)
			}
			if operator, got := s.EmptyReaches(nil); got != Never {
				t.Fatalf("without an empty input: %d, %q", got, operator)
			}
		})
	}
	if operator, got := (&Signature{Operators: map[string]int{"LSTM": 1}}).EmptyReaches([]string{"past"}); got != Possible || operator != "LSTM" {
		t.Errorf("without nodes: %d, %q", got, operator)
	}
	if operator, got := (&Signature{Unread: true}).EmptyReaches([]string{"past"}); got != Possible || operator == "" {
		t.Errorf("with operators that could not be read: %d, %q", got, operator)
	}
	if operator, got := (&Signature{Operators: map[string]int{"Add": 1}, Nodes: graph("GRU past")}).EmptyReaches([]string{"past"}); got != Never {
		t.Errorf("without such an operator: %d, %q", got, operator)
	}
}
