package onnxfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// field returns a length-delimited field of a protobuf message with these parts.
func field(number int, parts ...[]byte) []byte {
	inside := bytes.Join(parts, nil)
	m := binary.AppendUvarint(nil, uint64(number)<<3|wireBytes)
	m = binary.AppendUvarint(m, uint64(len(inside)))
	return append(m, inside...)
}

func number(field int, v uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(nil, uint64(field)<<3|wireVarint), v)
}

func text(number int, s string) []byte { return field(number, []byte(s)) }

// nodeOf returns a NodeProto of a graph: an input, an output, its operator, attributes.
func nodeOf(operator string, attributes ...[]byte) []byte {
	return field(1, text(1, "x"), text(2, "y"), text(4, operator), bytes.Join(attributes, nil))
}

func equal(a, b map[string]int) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

// TestOperators checks that the nodes of a graph, of graphs in attributes and of
// functions are counted, and nothing else.
func TestOperators(t *testing.T) {
	branch := field(5, text(1, "then_branch"), field(6, nodeOf("RandomNormal"), nodeOf("Add")), number(20, 5))
	bodies := field(5, text(1, "bodies"), field(11, nodeOf("Mul")), field(11, nodeOf("If", branch)))
	weights := field(5, number(1, 2), number(2, 1), text(8, "Add"), field(9, bytes.Repeat(nodeOf("Sub"), 5000)))
	file := bytes.Join([][]byte{
		number(1, 8), text(2, "producer"),
		field(7, nodeOf("Add"), weights, nodeOf("Loop", bodies), text(2, "Sub"), nodeOf("Add")),
		field(8, number(2, 17)), // opset_import
		field(14, text(1, "key"), text(2, "Sub")),
		field(25, text(1, "MyFunction"), text(4, "x"), field(7, text(4, "DynamicQuantizeLinear"))),
		{0x0d, 1, 2, 3, 4}, // field 1 as fixed32
		{0x09, 1, 2, 3, 4, 5, 6, 7, 8},
	}, nil)
	path := filepath.Join(t.TempDir(), "model.onnx")
	if err := os.WriteFile(path, file, 0o644); err != nil {
		t.Fatal(err)
	}
	got, nodes, err := Read(path)
	want := map[string]int{"Add": 3, "Loop": 1, "Mul": 1, "If": 1, "RandomNormal": 1, "DynamicQuantizeLinear": 1}
	if err != nil || !equal(got, want) {
		t.Fatalf("got %v, %v: want %v", got, err, want)
	}
	if graph := fmt.Sprint(nodes); graph != "[{Add [x] [y]  [] false} {Loop [x] [y]  [[{Mul [x] [y]  [] false}] [{If [x] [y]  [[{RandomNormal [x] [y]  [] false} {Add [x] [y]  [] false}]] false}]] false} {Add [x] [y]  [] false}]" {
		t.Fatal("the nodes are", graph)
	}
}

// TestNodes: what is read of nodes besides their operators, and the bodies of functions.
func TestNodes(t *testing.T) {
	einsum := field(1, text(1, "a"), text(1, "b"), text(2, "c"), text(4, "Einsum"), field(5, text(1, "equation"), text(4, "i,i->i")), field(5, text(1, "other"), text(4, strings.Repeat("x", maxText+1))))
	file := bytes.Join([][]byte{field(7, einsum, nodeOf("MyFunction")), field(25, text(1, "Inner"), field(7, text(4, "Cos"))),
		field(25, text(1, "MyFunction"), field(7, text(4, "Inner"))), field(25, text(1, "MyFunction"))}, nil)
	_, nodes, err := scan(bytes.NewReader(file))
	if got := fmt.Sprint(nodes); err != nil || got != "[{Einsum [a b] [c] i,i->i [] false} {MyFunction [x] [y]  [[{Inner [] []  [[{Cos [] []  [] false}]] true}] []] true}]" {
		t.Fatal(got, err)
	}
}

// TestLongNames: a name that is too long to be kept takes the nodes, and not the operators.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("x", maxText+1)
	for name, c := range map[string]struct {
		file  []byte
		nodes bool
	}{
		"input":     {field(7, nodeOf("Add"), field(1, text(1, long), text(4, "GRU"))), false},
		"output":    {field(7, nodeOf("Add"), field(1, text(2, long), text(4, "GRU"))), false},
		"in a body": {field(7, nodeOf("Add"), field(1, text(4, "GRU"), field(5, field(6, field(1, text(1, long)))))), false},
		"function":  {bytes.Join([][]byte{field(7, nodeOf("Add"), nodeOf("GRU")), field(25, text(1, long))}, nil), false},
		"attribute": {field(7, nodeOf("Add"), nodeOf("GRU", field(5, text(1, long)))), true},
	} {
		got, nodes, err := scan(bytes.NewReader(c.file))
		if err != nil || !equal(got, map[string]int{"Add": 1, "GRU": 1}) || (nodes != nil) != c.nodes {
			t.Errorf("%s: got %v, %v, %v", name, got, nodes, err)
		}
	}
}

// TestInvalidFiles checks that invalid files give an error and no counts.
func TestInvalidFiles(t *testing.T) {
	deep := nodeOf("Deepest")
	for range maxDepth / 3 {
		deep = nodeOf("If", field(5, field(6, deep)))
	}
	names := make([][]byte, maxNames+1)
	for i := range names {
		names[i] = nodeOf(fmt.Sprint("Op", i))
	}
	for name, c := range map[string]struct{ file, want string }{
		"ORT format":     {"\x20\x00\x00\x00ORTM6789", "ORT format"},
		"text":           {"version https://git-lfs.github.com/spec/v1\n", "wire type 6"},
		"truncated":      {string(field(7, nodeOf("Add"), nodeOf("Sub")))[:12], "truncated"},
		"cut in a key":   {"\x80", "unexpected EOF"},
		"cut in a size":  {"\x3a\x80", "unexpected EOF"},
		"long key":       {strings.Repeat("\xff", 20), "overflows"},
		"over the end":   {string(field(7, []byte{0x88, 0x80}, nil)) + "\x00\x01", "at byte"},
		"long name":      {string(field(7, nodeOf(strings.Repeat("A", maxName+1)))), "at most 256"},
		"deep":           {string(field(7, deep)), "nested"},
		"too many names": {string(field(7, names...)), "4096 different operators"},
	} {
		t.Run(name, func(t *testing.T) {
			got, _, err := scan(strings.NewReader(c.file))
			if err == nil || got != nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, %v: want an error with %q", got, err, c.want)
			}
		})
	}
	if _, _, err := scan(strings.NewReader("\x20\x00\x00\x00ORTM")); !errors.Is(err, errORTFormat) {
		t.Error("ORT format is not recognized:", err)
	}
	if _, _, err := Read(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error("no file:", err)
	}
	if got, _, err := scan(strings.NewReader("")); err != nil || len(got) > 0 {
		t.Error("an empty file has no operators:", got, err)
	}
}

// TestRandomModels compares the counts with those of generated models.
func TestRandomModels(t *testing.T) {
	for seed := range uint64(50) {
		r, want := rand.New(rand.NewPCG(seed, 1)), map[string]int{}
		var write func(depth int) []byte // the nodes of a graph
		write = func(depth int) []byte {
			var nodes [][]byte
			for range r.IntN(5) {
				operator := fmt.Sprintf("Op%d", r.IntN(9))
				var attributes [][]byte
				for range r.IntN(3) {
					weights := field(5, field(9, make([]byte, r.IntN(9_000)))) // AttributeProto.t
					if depth > 0 {
						attributes = append(attributes, field(5, field([]int{6, 11}[r.IntN(2)], write(depth-1))))
					}
					attributes = append(attributes, field(5, weights))
				}
				want[operator]++
				nodes = append(nodes, nodeOf(operator, attributes...), field(5, make([]byte, r.IntN(9_000))))
			}
			return bytes.Join(nodes, nil)
		}
		file := field(7, write(2))
		if got, _, err := scan(bytes.NewReader(file)); err != nil || !equal(got, want) {
			t.Fatalf("seed %d: got %v, %v: want %v", seed, got, err, want)
		}
	}
}

// sparse is a file of any size with only zeros after its beginning. It counts the bytes
// that are read.
type sparse struct {
	*io.SectionReader
	read int
}

func (s *sparse) Read(p []byte) (int, error) {
	n, err := s.SectionReader.Read(p)
	s.read += n
	return n, err
}

type beginning []byte

func (b beginning) ReadAt(p []byte, at int64) (int, error) {
	clear(p)
	if at < int64(len(b)) {
		copy(p, b[at:])
	}
	return len(p), nil
}

// TestWeightsAreSkipped checks that at most 100 kB of a model of 1 TiB are read.
func TestWeightsAreSkipped(t *testing.T) {
	const weights = 1 << 40
	inside := binary.AppendUvarint([]byte{5<<3 | wireBytes}, weights) // GraphProto.initializer
	inside = append(nodeOf("Add"), inside...)
	file := binary.AppendUvarint([]byte{7<<3 | wireBytes}, uint64(len(inside)+weights))
	file = append(file, inside...)
	s := &sparse{SectionReader: io.NewSectionReader(beginning(file), 0, int64(len(file))+weights)}
	got, _, err := scan(s)
	if err != nil || got["Add"] != 1 || s.read > 100_000 {
		t.Fatalf("got %v, %v after %d bytes", got, err, s.read)
	}
}

// FuzzOperators looks for files that crash the program, that give more operators than
// they can contain, or whose beginning gives more operators than the whole file.
func FuzzOperators(f *testing.F) {
	f.Add(field(7, nodeOf("Add"), nodeOf("If", field(5, field(6, nodeOf("Mul"))))), 9)
	f.Add(field(25, field(7, text(4, "Cos"))), 3)
	f.Add([]byte("\x20\x00\x00\x00ORTM"), 4)
	f.Fuzz(func(t *testing.T, file []byte, cut int) {
		whole, _, err := scan(bytes.NewReader(file))
		total := 0
		for name, n := range whole {
			if n <= 0 || name == "" || !bytes.Contains(file, []byte(name)) {
				t.Fatalf("operator %q has count %d", name, n)
			}
			total += n * (2 + len(name)) // a key, a size and the name
		}
		if total > len(file) || err != nil && whole != nil {
			t.Fatalf("a file of %d bytes gives %v, %v", len(file), whole, err)
		}
		if err != nil || cut < 0 || cut > len(file) {
			return
		}
		part, _, _ := scan(bytes.NewReader(file[:cut]))
		for name, n := range part {
			if n > whole[name] {
				t.Fatalf("the first %d bytes have %d of operator %q, the whole file has %d", cut, n, name, whole[name])
			}
		}
	})
}
