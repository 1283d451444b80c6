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

// The fields on the way from a ModelProto to the place of the data of an initializer (onnx.proto).
const (
	modelGraph       = 7
	graphInitializer = 5
	tensorExternal   = 13
	entryKey         = 1
	entryValue       = 2
)

// externalFiles are the files that an ONNX model keeps its weights in, relative to its own folder, each once.
func externalFiles(model []byte) ([]string, error) {
	found := map[string]string{}
	err := messages(model, modelGraph, func(graph []byte) error {
		return messages(graph, graphInitializer, func(tensor []byte) error {
			return messages(tensor, tensorExternal, func(entry []byte) error {
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
		})
	})
	return keysOf(found), err
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
