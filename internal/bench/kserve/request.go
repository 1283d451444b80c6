package kserve

import "google.golang.org/protobuf/encoding/protowire"

// Field numbers of ModelInferRequest and the messages inside it.
const (
	requestModel      = 1
	requestID         = 3
	requestParameters = 4
	requestInputs     = 5
	requestOutputs    = 6
	requestRawInputs  = 7

	tensorName     = 1
	tensorDatatype = 2
	tensorShape    = 3

	entryKey   = 1
	entryValue = 2

	parameterBool  = 1
	parameterInt64 = 2
	parameterText  = 3
)

// Tensor is one input: its KServe datatype ("FP32"), its shape with the batch axis, and its bytes in row-major
// little-endian order.
type Tensor struct {
	Name     string
	Datatype string
	Shape    []int64
	Data     []byte
}

// Call is what stays the same over all steps of one sequence.
type Call struct {
	Model   string
	ID      string // comes back in the answer, also in most error answers
	Inputs  []Tensor
	Outputs []string // empty: the server sends every output
}

// SequenceID names a sequence by a number, or by Text where that is not empty.
type SequenceID struct {
	Number uint64
	Text   string
}

// Flags mark a step's place in its sequence.
type Flags uint8

// A sequence of one step has both flags.
const (
	Start Flags = 1 << iota
	End
)

// Request is an encoded ModelInferRequest that is sent many times. Field order is free in protobuf, so everything that
// never changes comes first and each step's parameters are appended to it.
//
// A Request is lent to gRPC by SendMsg until its answer has arrived; do not change it before.
type Request struct {
	wire   []byte
	fixed  int    // length of the part that never changes
	inputs []span // where each input's data lies in wire
}

type span struct{ from, to int }

// NewRequest encodes everything of a request but its step. Call SetStep before sending it.
func NewRequest(call Call) *Request {
	r := &Request{}
	r.wire = appendText(r.wire, requestModel, call.Model)
	r.wire = appendText(r.wire, requestID, call.ID)
	for _, input := range call.Inputs {
		r.wire = appendBytes(r.wire, requestInputs, encodeTensor(input))
	}
	for _, output := range call.Outputs {
		r.wire = appendBytes(r.wire, requestOutputs, appendText(nil, tensorName, output))
	}
	for _, input := range call.Inputs {
		r.wire = appendBytes(r.wire, requestRawInputs, input.Data)
		r.inputs = append(r.inputs, span{len(r.wire) - len(input.Data), len(r.wire)})
	}
	r.fixed = len(r.wire)
	return r
}

func encodeTensor(t Tensor) []byte {
	message := appendText(nil, tensorName, t.Name)
	message = appendText(message, tensorDatatype, t.Datatype)
	var shape []byte
	for _, dim := range t.Shape {
		shape = protowire.AppendVarint(shape, uint64(dim))
	}
	return appendBytes(message, tensorShape, shape)
}

// Input returns the bytes of input i inside the encoded request, to be overwritten for the next step. The slice is
// valid until the next SetStep.
func (r *Request) Input(i int) []byte {
	return r.wire[r.inputs[i].from:r.inputs[i].to]
}

// SetStep says which sequence the request belongs to and where in it this step stands.
func (r *Request) SetStep(id SequenceID, flags Flags) {
	r.wire = appendBoolParameter(r.wire[:r.fixed], "sequence_end", flags&End != 0)
	r.wire = appendIDParameter(r.wire, "sequence_id", id)
	r.wire = appendBoolParameter(r.wire, "sequence_start", flags&Start != 0)
}

// Wire returns the encoded message.
func (r *Request) Wire() []byte { return r.wire }

func appendBoolParameter(b []byte, key string, value bool) []byte {
	var scratch [8]byte
	return appendParameter(b, key, appendVarint(scratch[:0], parameterBool, protowire.EncodeBool(value)))
}

func appendIDParameter(b []byte, key string, id SequenceID) []byte {
	var scratch [64]byte // longer texts work too, at the price of an allocation
	if id.Text != "" {
		return appendParameter(b, key, appendText(scratch[:0], parameterText, id.Text))
	}
	return appendParameter(b, key, appendVarint(scratch[:0], parameterInt64, id.Number))
}

// appendParameter appends one entry of the map of parameters, itself a message of key and value.
func appendParameter(b []byte, key string, value []byte) []byte {
	length := protowire.SizeTag(entryKey) + protowire.SizeBytes(len(key)) +
		protowire.SizeTag(entryValue) + protowire.SizeBytes(len(value))
	b = protowire.AppendTag(b, requestParameters, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(length))
	b = appendText(b, entryKey, key)
	return appendBytes(b, entryValue, value)
}
