package onnxfile

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// ErrORTFormat is that of a file in ONNX Runtime's own format (.ort), whose
// operators cannot be told.
var ErrORTFormat = errors.New("the file is in ORT format")

const (
	maxDepth = 64   // messages in each other; protobuf's own parser allows 100
	maxName  = 256  // bytes of an operator's name
	maxNames = 4096 // operators that differ
)

// Operators counts the nodes of a model file by their op_type, whatever their
// domain: those of the graph, of all graphs inside it (the branches of If, the body
// of Loop) and of the model's functions, each as often as it is written, however
// often it is run. No file beside it (external data) is looked at.
func Operators(path string) (map[string]int, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return scan(file)
}

// scan is Operators for a file that is open, from its beginning.
func scan(file io.ReadSeeker) (map[string]int, error) {
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	s := &scanner{file: file, read: bufio.NewReader(file), found: map[string]int{}}
	// A flatbuffer: an offset, then the name of what it holds.
	if head, err := s.read.Peek(8); err == nil && string(head[4:]) == "ORTM" {
		return nil, ErrORTFormat
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

// kind is a message of onnx.proto in which nodes can be.
type kind int

const (
	other kind = iota // skipped
	model
	graph
	node
	attribute
	function
	opType // a string, the name of a node's operator
)

// fields are those that lead to nodes, by their numbers in onnx.proto.
var fields = map[kind]map[uint64]kind{
	model:     {7: graph, 25: function},
	graph:     {1: node},
	function:  {7: node},
	node:      {4: opType, 5: attribute},
	attribute: {6: graph, 11: graph}, // g, graphs
}

// scanner walks once over a file, from its beginning to its end.
type scanner struct {
	file  io.ReadSeeker
	read  *bufio.Reader
	at    int64 // how much of the file has been read or skipped
	found map[string]int
}

// message reads the message that goes on to the byte end.
func (s *scanner) message(k kind, end int64, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("more than %d messages are in each other", maxDepth)
	}
	operator := "" // of a node; the last one counts, as protobuf has it
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
			return errors.New("a field is longer than what it is in: the file is cut off, or no ONNX model")
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
		return errors.New("a field is longer than what it is in: the file is no ONNX model")
	}
	return s.count(operator)
}

// count notes a node; "" is none.
func (s *scanner) count(operator string) error {
	if operator == "" {
		return nil
	}
	if s.found[operator]++; len(s.found) > maxNames {
		return fmt.Errorf("more than %d operators differ", maxNames)
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

// size is how many bytes a field of a wire type has yet.
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
	return 0, fmt.Errorf("wire type %d: the file is no ONNX model", wire)
}

// ReadByte makes the scanner an io.ByteReader.
func (s *scanner) ReadByte() (byte, error) {
	b, err := s.read.ReadByte()
	if err == nil {
		s.at++
	}
	return b, err
}

func (s *scanner) text(size int64) (string, error) {
	if size > maxName {
		return "", fmt.Errorf("the name of an operator has %d bytes: at most %d are read", size, maxName)
	}
	text := make([]byte, size)
	n, err := io.ReadFull(s.read, text)
	s.at += int64(n)
	return string(text), err
}

// skip leaves bytes out without reading them, where there are many.
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
