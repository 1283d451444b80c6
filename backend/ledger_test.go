package backend

import (
	"encoding/binary"
	"errors"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// ledger is a model whose state says whose it is. A sequence gives its name, a
// number that no other one has, with its first request; the model writes it into
// every element of its states and answers with the least and the greatest
// element that it found, so that a single foreign byte shows.
//
//	name' = who holds zeros ? x : who        Y = min(who', tape'), max(who', tape'), count'
//	count' = count + 1                       tape' = tape and name', the last three
type ledger struct {
	sig    onnx.Signature
	memory statebuffer.Memory
	tape   bool // the model has the state of varying shape
	// before is called at the start of each Run; its error is Run's.
	before func() error
	out    []byte // of the tape, which the runner allocates
	// outer and inner are the extents of who before and behind the batch.
	outer, inner int
	runs         int
}

const longestTape = 3

func newLedger(memory statebuffer.Memory, tape bool, outer, inner int) *ledger {
	info := func(name string, axis int, dims ...int64) onnx.TensorInfo {
		t := onnx.TensorInfo{Name: name, DType: tensor.Int64, Dims: dims, Symbols: make([]string, len(dims))}
		t.Symbols[axis] = "batch"
		return t
	}
	const free = tensor.Dynamic
	l := &ledger{memory: memory, tape: tape, outer: outer, inner: inner, sig: onnx.Signature{
		Inputs:  []onnx.TensorInfo{info("X", 0, free, 1), info("who", 1, int64(outer), free, int64(inner)), info("count", 0, free, 1)},
		Outputs: []onnx.TensorInfo{info("Y", 0, free, 3), info("new_who", 1, int64(outer), free, int64(inner)), info("new_count", 0, free, 1)},
	}}
	if tape {
		l.sig.Inputs = append(l.sig.Inputs, info("tape", 0, free, free))
		l.sig.Outputs = append(l.sig.Outputs, info("new_tape", 0, free, free))
	}
	return l
}

func (l *ledger) Signature() *onnx.Signature { return &l.sig }
func (l *ledger) Memory() statebuffer.Memory { return l.memory }
func (l *ledger) Close()                     {}

func (l *ledger) Run(inputs, outputs []onnx.Tensor) error {
	for _, o := range outputs { // undefined after an error, so undefine them first
		for i := range o.Data.Bytes {
			o.Data.Bytes[i] = 0xEE
		}
	}
	if l.before != nil {
		if err := l.before(); err != nil {
			return err
		}
	}
	l.runs++
	lanes := int(inputs[0].Shape[0])
	length := 0
	if l.tape {
		length = l.newTape(lanes, inputs, outputs)
	}
	for i, t := range append(inputs[:len(inputs):len(inputs)], outputs...) {
		if bytes, err := t.Shape.Bytes(t.DType); err != nil || bytes != int64(len(t.Data.Bytes)) {
			return errors.New("ledger: a tensor's bytes do not fit its shape: " + t.Shape.String() + ", tensor " + string(rune('0'+i)))
		}
	}
	for lane := range lanes {
		l.runLane(lane, lanes, length, inputs, outputs)
	}
	return nil
}

// newTape makes room for the tapes of a run and tells how long they are.
func (l *ledger) newTape(lanes int, inputs, outputs []onnx.Tensor) int {
	length := min(int(inputs[3].Shape[1])+1, longestTape)
	l.out = append(l.out[:0], make([]byte, 8*lanes*length)...)
	outputs[3] = onnx.Tensor{DType: tensor.Int64, Shape: tensor.Shape{int64(lanes), int64(length)}, Data: statebuffer.Block{Bytes: l.out, Size: int64(len(l.out))}}
	return length
}

func (l *ledger) runLane(lane, lanes, length int, inputs, outputs []onnx.Tensor) {
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
	for x := range l.outer {
		for y := range l.inner {
			i := (x*lanes+lane)*l.inner + y
			v := name(get(&inputs[1], i))
			note(v)
			put(&outputs[1], i, v)
		}
	}
	count := get(&inputs[2], lane) + 1
	put(&outputs[2], lane, count)
	if l.tape {
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
