package scaffold

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

func keysOf(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// kind is a message of onnx.proto that can contain tensors.
type kind int

const (
	ofModel kind = iota
	ofGraph
	ofFunction
	ofNode
	ofAttribute
	ofSparse
	ofTensor
	ofEntry // of external_data
)

// contains is which fields of a message lead to the places of the data of tensors. Graphs are also in the attributes of nodes,
// such as the branches of an If.
var contains = map[kind]map[protowire.Number]kind{
	ofModel:     {7: ofGraph, 25: ofFunction},
	ofGraph:     {1: ofNode, 5: ofTensor, 15: ofSparse},
	ofFunction:  {7: ofNode, 11: ofAttribute},
	ofNode:      {5: ofAttribute},
	ofAttribute: {5: ofTensor, 6: ofGraph, 10: ofTensor, 11: ofGraph, 22: ofSparse, 23: ofSparse},
	ofSparse:    {1: ofTensor, 2: ofTensor},
	ofTensor:    {13: ofEntry},
}

// The fields of an entry.
const (
	entryKey   = 1
	entryValue = 2
)

// externalFiles are the files that an ONNX model keeps its weights in, relative to its own folder, each once.
func externalFiles(model []byte) ([]string, error) {
	found := map[string]string{}
	err := eachEntry(ofModel, model, func(entry []byte) error {
		var key, value string
		err := errors.Join(
			messages(entry, entryKey, func(text []byte) error { key = string(text); return nil }),
			messages(entry, entryValue, func(text []byte) error { value = string(text); return nil }),
		)
		switch {
		case err != nil || key != "location":
			return err
		case !filepath.IsLocal(value):
			return fmt.Errorf("its weights are in %q: want a file in the folder of the model", value)
		}
		found[value] = ""
		return nil
	})
	return keysOf(found), err
}

// eachEntry calls a function for each entry of external_data in a message.
func eachEntry(of kind, message []byte, each func([]byte) error) error {
	if of == ofEntry {
		return each(message)
	}
	for number, inner := range contains[of] {
		if err := messages(message, number, func(content []byte) error { return eachEntry(inner, content, each) }); err != nil {
			return err
		}
	}
	return nil
}

// messages calls a function for each field of that number, which is a message or a string.
func messages(message []byte, number protowire.Number, each func([]byte) error) error {
	for len(message) > 0 {
		n, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return protowire.ParseError(size)
		}
		message = message[size:]
		if n == number && kind == protowire.BytesType {
			content, size := protowire.ConsumeBytes(message)
			if size < 0 {
				return protowire.ParseError(size)
			}
			if err := each(content); err != nil {
				return err
			}
			message = message[size:]
			continue
		}
		if size = protowire.ConsumeFieldValue(n, kind, message); size < 0 {
			return protowire.ParseError(size)
		}
		message = message[size:]
	}
	return nil
}
