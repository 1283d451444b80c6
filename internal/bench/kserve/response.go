package kserve

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of ModelStreamInferResponse and ModelInferResponse.
const (
	streamError    = 1
	streamResponse = 2

	responseID         = 3
	responseOutputs    = 5
	responseRawOutputs = 6
)

// Output is one tensor of an answer; both slices borrow from the Response.
type Output struct {
	Name []byte
	Data []byte
}

// Response is a decoded ModelStreamInferResponse. It is reused: its contents are valid until it receives again.
type Response struct {
	Error   []byte // what the server says went wrong; empty: nothing
	ID      []byte // the ID of the request; empty where the server does not know whose error it reports
	Outputs []Output

	buffer []byte
}

// Buffer returns n bytes that the response keeps and Parse reads from.
func (r *Response) Buffer(n int) []byte {
	if cap(r.buffer) < n {
		r.buffer = make([]byte, n)
	}
	return r.buffer[:n]
}

// Parse decodes a message. The response borrows from it.
func (r *Response) Parse(message []byte) error {
	r.Error, r.ID, r.Outputs = nil, nil, r.Outputs[:0]
	return eachField(message, func(number protowire.Number, value field) error {
		switch number {
		case streamError:
			r.Error = value.Bytes
		case streamResponse:
			return r.parseInference(value.Bytes)
		}
		return nil
	})
}

func (r *Response) parseInference(message []byte) error {
	raw := 0
	return eachField(message, func(number protowire.Number, value field) error {
		switch number {
		case responseID:
			r.ID = value.Bytes
		case responseOutputs:
			name, err := outputName(value.Bytes)
			r.Outputs = append(r.Outputs, Output{Name: name})
			return err
		case responseRawOutputs: // in the order of the outputs, which come first
			if raw >= len(r.Outputs) {
				return fmt.Errorf("answer %q has more contents than outputs (%d)", r.ID, len(r.Outputs))
			}
			r.Outputs[raw].Data = value.Bytes
			raw++
		}
		return nil
	})
}

func outputName(message []byte) (name []byte, err error) {
	err = eachField(message, func(number protowire.Number, value field) error {
		if number == tensorName {
			name = value.Bytes
		}
		return nil
	})
	return name, err
}

// Output finds an output by its name.
func (r *Response) Output(name string) (data []byte, found bool) {
	for _, output := range r.Outputs {
		if string(output.Name) == name {
			return output.Data, true
		}
	}
	return nil, false
}
