package onnxtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// Type is TensorProto.DataType.
type Type int64

// The element types of tensors.
const (
	Float     Type = 1
	Uint8     Type = 2
	Int8      Type = 3
	Uint16    Type = 4
	Int16     Type = 5
	Int32     Type = 6
	Int64     Type = 7
	String    Type = 8
	Bool      Type = 9
	Float16   Type = 10
	Double    Type = 11
	Uint32    Type = 12
	Uint64    Type = 13
	Complex64 Type = 14
	BFloat16  Type = 16
	Float8    Type = 17 // E4M3FN
)

// Dim is the extent of an axis: int64, the name of one that is not fixed, or ""
// for one that has not even a name.
type Dim any

// Dims is the extents of a tensor: int or string each.
func Dims(extents ...any) []Dim {
	dims := make([]Dim, 0, len(extents)) // not nil: a scalar has a shape
	for _, e := range extents {
		if n, ok := e.(int); ok {
			e = int64(n)
		}
		dims = append(dims, e)
	}
	return dims
}

// Value is an input or output of a graph.
type Value struct {
	Name string
	Type Type
	Dims []Dim // nil: not even the rank is given
	// Sequence makes it a sequence of such tensors.
	Sequence bool
}

// Node is one operator.
type Node struct {
	Op         string
	Domain     string // of the operator; "" is ONNX's own
	Inputs     []string
	Outputs    []string
	Attributes []Attribute
}

// Attribute is an attribute of a node: an int64, a float32, a string, an []int64
// or a Tensor.
type Attribute struct {
	Name  string
	Value any
}

// Tensor is a constant. Data is a slice of fixed-size numbers, or []string.
type Tensor struct {
	Name string
	Type Type
	Dims []int64
	Data any
}

// Model is a graph. An initializer of an input's name is that input's default.
type Model struct {
	Inputs       []Value
	Outputs      []Value
	Nodes        []Node
	Initializers []Tensor
	Description  string // the graph's doc string
	Opset        int64  // 0 is 17
}

// Write writes the model to a folder "1" of a temporary one and gives the path.
func (m Model) Write(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "1", "model.onnx")
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, m.Marshal(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Marshal is the model as a file holds it: a ModelProto.
func (m Model) Marshal() []byte {
	opset := m.Opset
	if opset == 0 {
		opset = 17
	}
	var version message
	version.integer(2, opset) // OperatorSetIdProto.version
	var model message
	model.integer(1, 8)       // ir_version
	model.text(2, "onnxtest") // producer_name
	model.bytes(7, m.graph()) // graph
	model.bytes(8, version)   // opset_import
	for _, n := range m.Nodes {
		if n.Domain != "" {
			var own message
			own.text(1, n.Domain)
			own.integer(2, 1)
			model.bytes(8, own)
		}
	}
	return model
}

func (m Model) graph() message {
	var g message // GraphProto
	for _, n := range m.Nodes {
		g.bytes(1, n.marshal())
	}
	g.text(2, "graph")
	for _, t := range m.Initializers {
		g.bytes(5, t.marshal())
	}
	g.text(10, m.Description)
	for _, v := range m.Inputs {
		g.bytes(11, v.marshal())
	}
	for _, v := range m.Outputs {
		g.bytes(12, v.marshal())
	}
	return g
}

func (n Node) marshal() message {
	var node message // NodeProto
	node.strings(1, n.Inputs)
	node.strings(2, n.Outputs)
	node.text(4, n.Op)
	node.text(7, n.Domain)
	for _, a := range n.Attributes {
		node.bytes(5, a.marshal())
	}
	return node
}

func (a Attribute) marshal() message {
	var m message // AttributeProto
	m.text(1, a.Name)
	kind := int64(0)
	switch v := a.Value.(type) {
	case float32:
		kind = 1
		m.float(2, math.Float32bits(v))
	case int64:
		kind = 2
		m.integer(3, v)
	case string:
		kind = 3
		m.text(4, v)
	case Tensor:
		kind = 4
		m.bytes(5, v.marshal())
	case []int64:
		kind = 7
		for _, i := range v {
			m.integer(8, i)
		}
	default:
		panic(fmt.Sprintf("onnxtest: attribute %q is a %T", a.Name, a.Value))
	}
	m.integer(20, kind) // type
	return m
}

func (t Tensor) marshal() message {
	var m message // TensorProto
	for _, d := range t.Dims {
		m.integer(1, d)
	}
	m.integer(2, int64(t.Type))
	m.text(8, t.Name)
	if words, ok := t.Data.([]string); ok {
		m.strings(6, words) // string_data
		return m
	}
	var raw bytes.Buffer
	if err := binary.Write(&raw, binary.LittleEndian, t.Data); err != nil {
		panic(fmt.Sprintf("onnxtest: tensor %q: %v", t.Name, err))
	}
	m.bytes(9, raw.Bytes()) // raw_data
	return m
}

func (v Value) marshal() message {
	var tensor message // TypeProto.Tensor
	tensor.integer(1, int64(v.Type))
	if v.Dims != nil {
		tensor.bytes(2, marshalShape(v.Dims))
	}
	var kind message // TypeProto
	kind.bytes(1, tensor)
	if v.Sequence {
		var sequence message // TypeProto.Sequence
		sequence.bytes(1, kind)
		kind = nil
		kind.bytes(4, sequence)
	}
	var m message // ValueInfoProto
	m.text(1, v.Name)
	m.bytes(2, kind)
	return m
}

func marshalShape(dims []Dim) message {
	var shape message // TensorShapeProto
	for _, d := range dims {
		var dim message // Dimension
		switch v := d.(type) {
		case int64:
			dim.integer(1, v)
		case string:
			dim.text(2, v)
		default:
			panic(fmt.Sprintf("onnxtest: an extent is a %T", d))
		}
		shape.bytes(1, dim)
	}
	return shape
}
