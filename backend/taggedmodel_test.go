package backend

import (
	"encoding/binary"
	"errors"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// taggedModel is a model whose states hold the name of their sequence. A sequence sends
// its name, a number that no other one has, with its first request; the model writes it
// into every element of its states and answers with the least and the greatest element
// that it found, so that a single byte of another sequence shows.
//
//	name' = who holds zeros ? x : who        Y = min(who', growing'), max(who', growing'), count'
//	count' = count + 1                       growing' = growing and name', the last three
type taggedModel struct {
	sig     onnx.Signature
	memory  statebuffer.Memory
	growing bool // the model has the state of varying shape
	// before is called at the start of each Run; its error is Run's.
	before func() error
	out    []byte // of the growing state, which the runner allocates
	// outer and inner are the extents of who before and after the batch.
	outer, inner int
	runs         int
}

const longestGrowing = 3

func newTaggedModel(memory statebuffer.Memory, growing bool, outer, inner int) *taggedModel {
	info := func(name string, axis int, dims ...int64) onnx.TensorInfo {
		t := onnx.TensorInfo{Name: name, DType: tensor.Int64, Dims: dims, Symbols: make([]string, len(dims))}
		t.Symbols[axis] = "batch"
		return t
	}
	const free = tensor.Dynamic
	m := &taggedModel{memory: memory, growing: growing, outer: outer, inner: inner, sig: onnx.Signature{
		Inputs:  []onnx.TensorInfo{info("X", 0, free, 1), info("who", 1, int64(outer), free, int64(inner)), info("count", 0, free, 1)},
		Outputs: []onnx.TensorInfo{info("Y", 0, free, 3), info("new_who", 1, int64(outer), free, int64(inner)), info("new_count", 0, free, 1)},
	}}
	if growing {
		m.sig.Inputs = append(m.sig.Inputs, info("growing", 0, free, free))
		m.sig.Outputs = append(m.sig.Outputs, info("new_growing", 0, free, free))
	}
	return m
}

func (m *taggedModel) Signature() *onnx.Signature { return &m.sig }
func (m *taggedModel) Memory() statebuffer.Memory { return m.memory }
func (m *taggedModel) Close()                     {}

func (m *taggedModel) Run(inputs, outputs []onnx.Tensor) error {
	for _, o := range outputs { // undefined after an error, so undefine them first
		for i := range o.Data.Bytes {
			o.Data.Bytes[i] = 0xEE
		}
	}
	if m.before != nil {
		if err := m.before(); err != nil {
			return err
		}
	}
	m.runs++
	lanes := int(inputs[0].Shape[0])
	length := 0
	if m.growing {
		length = m.newGrowing(lanes, inputs, outputs)
	}
	for i, t := range append(inputs[:len(inputs):len(inputs)], outputs...) {
		if bytes, err := t.Shape.Bytes(t.DType); err != nil || bytes != int64(len(t.Data.Bytes)) {
			return errors.New("tagged model: a tensor's bytes do not fit its shape: " + t.Shape.String() + ", tensor " + string(rune('0'+i)))
		}
	}
	for lane := range lanes {
		m.runLane(lane, lanes, length, inputs, outputs)
	}
	return nil
}

// newGrowing makes room for the growing states of a run and returns how long they are.
func (m *taggedModel) newGrowing(lanes int, inputs, outputs []onnx.Tensor) int {
	length := min(int(inputs[3].Shape[1])+1, longestGrowing)
	m.out = append(m.out[:0], make([]byte, 8*lanes*length)...)
	outputs[3] = onnx.Tensor{DType: tensor.Int64, Shape: tensor.Shape{int64(lanes), int64(length)}, Data: statebuffer.Block{Bytes: m.out, Size: int64(len(m.out))}}
	return length
}

func (m *taggedModel) runLane(lane, lanes, length int, inputs, outputs []onnx.Tensor) {
	at := func(t *onnx.Tensor, i int) []byte { return t.Data.Bytes[8*i:] }
	get := func(t *onnx.Tensor, i int) int64 { return int64(binary.NativeEndian.Uint64(at(t, i))) }
	put := func(t *onnx.Tensor, i int, v int64) { binary.NativeEndian.PutUint64(at(t, i), uint64(v)) }
	least, greatest := int64(1)<<62, int64(-1)<<62
	note := func(v int64) { least, greatest = min(least, v), max(greatest, v) }
	name := func(v int64) int64 {
		if v == 0 {
			return get(&inputs[0], lane)
		}
		return v
	}
	for x := range m.outer {
		for y := range m.inner {
			i := (x*lanes+lane)*m.inner + y
			v := name(get(&inputs[1], i))
			note(v)
			put(&outputs[1], i, v)
		}
	}
	count := get(&inputs[2], lane) + 1
	put(&outputs[2], lane, count)
	if m.growing {
		old := int(inputs[3].Shape[1])
		for i := range length - 1 {
			v := get(&inputs[3], lane*old+old-(length-1)+i)
			note(v)
			put(&outputs[3], lane*length+i, v)
		}
		put(&outputs[3], lane*length+length-1, least)
	}
	for i, v := range []int64{least, greatest, count} {
		put(&outputs[0], 3*lane+i, v)
	}
}
