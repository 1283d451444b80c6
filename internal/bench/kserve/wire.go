package kserve

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// field is one decoded field of a message. Number is set for varints, Bytes for everything with a length (text,
// bytes, messages); Bytes borrows from the message.
type field struct {
	Number uint64
	Bytes  []byte
}

// eachField calls visit for every varint and length-delimited field of a message, in wire order, and skips the rest:
// no message of ours has a field of another kind.
func eachField(message []byte, visit func(number protowire.Number, value field) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return fmt.Errorf("bad field tag: %w", protowire.ParseError(n))
		}
		message = message[n:]
		value, n := consumeValue(number, kind, message)
		if n < 0 {
			return fmt.Errorf("bad value of field %d: %w", number, protowire.ParseError(n))
		}
		message = message[n:]
		if kind != protowire.VarintType && kind != protowire.BytesType {
			continue
		}
		if err := visit(number, value); err != nil {
			return err
		}
	}
	return nil
}

func consumeValue(number protowire.Number, kind protowire.Type, message []byte) (value field, n int) {
	switch kind {
	case protowire.VarintType:
		value.Number, n = protowire.ConsumeVarint(message)
	case protowire.BytesType:
		value.Bytes, n = protowire.ConsumeBytes(message)
	default:
		n = protowire.ConsumeFieldValue(number, kind, message)
	}
	return value, n
}

func appendText(b []byte, number protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), text)
}

func appendBytes(b []byte, number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), content)
}

func appendVarint(b []byte, number protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), value)
}
