package onnxfile

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// errORTFormat is the error for a file in ONNX Runtime's own format (.ort), whose
// operators this package cannot read.
var errORTFormat = errors.New("the file is in ORT format")

const (
	maxDepth = 64   // levels of nested messages; protobuf's own parser allows 100
	maxName  = 256  // bytes of an operator's name
	maxNames = 4096 // different operators
)

// Operators returns how many nodes of each op_type a model file has, in any domain.
// It counts the nodes of the graph, of all graphs nested in it (the branches of If,
// the body of Loop) and of the model's functions; each node counts once, however often
// it runs. Files with external data are not read.
func Operators(path string) (map[string]int, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return scan(file)
}

// scan is Operators for an open file. It starts at the beginning of the file.
func scan(file io.ReadSeeker) (map[string]int, error) {
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	s := &scanner{file: file, read: bufio.NewReader(file), found: map[string]int{}}
	// ORT format is a flatbuffer: an offset, then an identifier.
	if head, err := s.read.Peek(8); err == nil && string(head[4:]) == "ORTM" {
		return nil, errORTFormat
	}
	err = s.message(model, size, 1)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("at byte %d: %w", s.at, err)
	}
	return s.found, nil
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
	opType // not a message: the string with the name of a node's operator
)

// fields are the fields that lead to nodes, by their numbers in onnx.proto.
var fields = map[kind]map[uint64]kind{
	model:     {7: graph, 25: function},
	graph:     {1: node},
	function:  {7: node},
	node:      {4: opType, 5: attribute},
	attribute: {6: graph, 11: graph}, // g, graphs
}

// scanner reads a file once, from its beginning to its end.
type scanner struct {
	file  io.ReadSeeker
	read  *bufio.Reader
	at    int64 // offset of the next byte in the file
	found map[string]int
}

// message reads a message of a kind that ends at the offset end.
func (s *scanner) message(k kind, end int64, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("more than %d levels of nested messages", maxDepth)
	}
	operator := "" // of a node; the last one counts, as in protobuf
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
		case inside == opType:
			operator, err = s.text(int64(size))
		default:
			err = s.message(inside, s.at+int64(size), depth+1)
		}
		if err != nil {
			return err
		}
	}
	if s.at > end {
		return errors.New("a field ends after its message: the file is not an ONNX model")
	}
	return s.count(operator)
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

func (s *scanner) text(size int64) (string, error) {
	if size > maxName {
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
