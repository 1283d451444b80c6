package onnxfile

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"tritonstateful/internal/onnx"
)

// errORTFormat is the error for a file in ONNX Runtime's own format (.ort), whose
// operators this package cannot read.
var errORTFormat = errors.New("the file is in ORT format")

const (
	maxDepth = 64   // levels of nested messages; protobuf's own parser allows 100
	maxName  = 256  // bytes of an operator's name
	maxText  = 4096 // bytes of the name of a tensor, and of an attribute that is read
	maxNames = 4096 // different operators
)

// Read returns how many nodes of each op_type a model file has, in any domain, and the nodes
// of its graph. It counts the nodes of the graph, of all graphs nested in it (the branches of
// If, the body of Loop) and of the model's functions; each node counts once, however often it
// runs. Files with external data are not read. The nodes are nil if the name of a tensor or of a
// function is longer than 4096 bytes.
func Read(path string) (operators map[string]int, nodes []onnx.Node, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	return scan(file)
}

// scan is Read for an open file. It starts at the beginning of the file.
func scan(file io.ReadSeeker) (operators map[string]int, nodes []onnx.Node, err error) {
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, nil, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, nil, err
	}
	s := &scanner{file: file, read: bufio.NewReader(file), found: map[string]int{}}
	// ORT format is a flatbuffer: an offset, then an identifier.
	if head, err := s.read.Peek(8); err == nil && string(head[4:]) == "ORTM" {
		return nil, nil, errORTFormat
	}
	var whole content
	err = s.message(model, size, 1, &whole)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, nil, fmt.Errorf("at byte %d: %w", s.at, err)
	}
	if whole.unnamed {
		return s.found, nil, nil
	}
	whole.link()
	return s.found, whole.nodes, nil
}

// kind is a message of onnx.proto that can contain nodes.
type kind int

const (
	other kind = iota // skipped
	model
	graph
	node
	attribute
	function
	// What follows are strings, and not messages.
	opType
	inputName
	outputName
	attributeName
	attributeText
	functionName
)

// fields are the fields that lead to nodes and what is read of them, by their numbers in onnx.proto.
var fields = map[kind]map[uint64]kind{
	model:     {7: graph, 25: function},
	graph:     {1: node},
	function:  {1: functionName, 7: node},
	node:      {1: inputName, 2: outputName, 4: opType, 5: attribute},
	attribute: {1: attributeName, 4: attributeText, 6: graph, 11: graph}, // g, graphs
}

// scanner reads a file once, from its beginning to its end.
type scanner struct {
	file  io.ReadSeeker
	read  *bufio.Reader
	at    int64 // offset of the next byte in the file
	found map[string]int
}

// message reads a message of a kind that ends at the offset end.
func (s *scanner) message(k kind, end int64, depth int, to *content) error {
	if depth > maxDepth {
		return fmt.Errorf("more than %d levels of nested messages", maxDepth)
	}
	for s.at < end {
		key, err := binary.ReadUvarint(s)
		if err != nil {
			return err
		}
		size, err := s.size(key & 7)
		if err != nil {
			return err
		}
		if size > uint64(max(end-s.at, 0)) {
			return errors.New("a field ends after its message: the file is truncated or not an ONNX model")
		}
		inside := fields[k][key>>3]
		switch {
		case inside == other || key&7 != wireBytes:
			err = s.skip(int64(size))
		case inside > opType && size > maxText:
			to.unnamed = to.unnamed || inside != attributeText && inside != attributeName
			err = s.skip(int64(size))
		case inside >= opType:
			var text string
			if text, err = s.text(inside, int64(size)); err == nil {
				to.setText(inside, text)
			}
		default:
			var part content
			if err = s.message(inside, s.at+int64(size), depth+1, &part); err == nil {
				to.add(k, inside, &part)
			}
		}
		if err != nil {
			return err
		}
	}
	if s.at > end {
		return errors.New("a field ends after its message: the file is not an ONNX model")
	}
	return s.count(to.node.Operator)
}

// count counts a node with this operator; "" stands for no node.
func (s *scanner) count(operator string) error {
	if operator == "" {
		return nil
	}
	if s.found[operator]++; len(s.found) > maxNames {
		return fmt.Errorf("more than %d different operators", maxNames)
	}
	return nil
}

// The wire types of protobuf.
const (
	wireVarint = 0
	wireFixed8 = 1
	wireBytes  = 2
	wireFixed4 = 5
)

// size returns how many bytes are left of a field whose key has been read. It reads
// the length that precedes bytes. A varint it reads completely, so none are left.
func (s *scanner) size(wire uint64) (uint64, error) {
	switch wire {
	case wireVarint:
		_, err := binary.ReadUvarint(s)
		return 0, err
	case wireFixed8:
		return 8, nil
	case wireBytes:
		return binary.ReadUvarint(s)
	case wireFixed4:
		return 4, nil
	}
	return 0, fmt.Errorf("wire type %d: the file is not an ONNX model", wire)
}

// ReadByte implements io.ByteReader.
func (s *scanner) ReadByte() (byte, error) {
	b, err := s.read.ReadByte()
	if err == nil {
		s.at++
	}
	return b, err
}

func (s *scanner) text(k kind, size int64) (string, error) {
	if k == opType && size > maxName {
		return "", fmt.Errorf("the name of an operator has %d bytes: want at most %d", size, maxName)
	}
	text := make([]byte, size)
	n, err := io.ReadFull(s.read, text)
	s.at += int64(n)
	return string(text), err
}

// skip skips bytes, and seeks if they are not buffered.
func (s *scanner) skip(size int64) error {
	s.at += size
	if size <= int64(s.read.Buffered()) {
		_, err := s.read.Discard(int(size))
		return err
	}
	_, err := s.file.Seek(s.at, io.SeekStart)
	s.read.Reset(s.file)
	return err
}
