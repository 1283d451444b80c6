package onnxtest

import "encoding/binary"

// message is a protobuf message in the making.
type message []byte

// The wire types of protobuf.
const (
	wireVarint = 0
	wireBytes  = 2
	wireFixed4 = 5
)

func (m *message) key(field, wire int) {
	*m = binary.AppendUvarint(*m, uint64(field<<3|wire))
}

func (m *message) integer(field int, v int64) {
	m.key(field, wireVarint)
	*m = binary.AppendUvarint(*m, uint64(v))
}

func (m *message) float(field int, bits uint32) {
	m.key(field, wireFixed4)
	*m = binary.LittleEndian.AppendUint32(*m, bits)
}

func (m *message) bytes(field int, v []byte) {
	m.key(field, wireBytes)
	*m = binary.AppendUvarint(*m, uint64(len(v)))
	*m = append(*m, v...)
}

// text writes a string, and nothing for an empty one, as protobuf does.
func (m *message) text(field int, v string) {
	if v != "" {
		m.bytes(field, []byte(v))
	}
}

// strings writes a repeated string; empty elements count.
func (m *message) strings(field int, v []string) {
	for _, s := range v {
		m.bytes(field, []byte(s))
	}
}
