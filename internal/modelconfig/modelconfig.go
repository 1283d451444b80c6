package modelconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/reflect/protoreflect"
)

//go:generate python3 -m grpc_tools.protoc -I. --go_out=. --go_opt=paths=source_relative model_config.proto

// Parse reads the text of a config.pbtxt. The error names the line and the field that Triton does not have.
func Parse(text []byte) (*ModelConfig, error) {
	m := &ModelConfig{}
	if err := prototext.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("reading the model configuration: %s", plain(err))
	}
	return m, nil
}

// FromJSON reads a configuration as Triton and backends have it; 64-bit numbers may be strings.
func FromJSON(text []byte) (*ModelConfig, error) {
	m := &ModelConfig{}
	if err := protojson.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("reading the model configuration: %s", plain(err))
	}
	return m, nil
}

// plain is an error of the protobuf library without its prefix, and with the spaces that it varies on purpose made the same.
func plain(err error) string {
	text := strings.ReplaceAll(err.Error(), "\u00a0", " ")
	return strings.TrimSpace(strings.TrimPrefix(text, "proto:"))
}

// JSON writes a configuration as TRITONBACKEND_ModelConfig gives it: with Triton's names, with numbers as numbers, and with
// numbers, strings and enumerations that have their defaults.
func JSON(m *ModelConfig) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(object(m.ProtoReflect())); err != nil {
		panic(err) // maps, lists, strings and numbers only
	}
	return bytes.TrimSpace(b.Bytes())
}

func object(m protoreflect.Message) map[string]any {
	fields := map[string]any{}
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		if m.Has(f) || !f.IsList() && !f.IsMap() && !f.HasPresence() {
			fields[string(f.Name())] = fieldValue(f, m.Get(f))
		}
	}
	return fields
}

func fieldValue(f protoreflect.FieldDescriptor, v protoreflect.Value) any {
	switch {
	case f.IsMap():
		entries := map[string]any{}
		v.Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
			entries[key.String()] = single(f.MapValue(), value)
			return true
		})
		return entries
	case f.IsList():
		list := make([]any, v.List().Len())
		for i := range list {
			list[i] = single(f, v.List().Get(i))
		}
		return list
	default:
		return single(f, v)
	}
}

// single is one value of a field. An enumeration has the name of its value, or its number where it has none.
func single(f protoreflect.FieldDescriptor, v protoreflect.Value) any {
	switch {
	case f.Message() != nil:
		return object(v.Message())
	case f.Enum() != nil:
		if name := f.Enum().Values().ByNumber(v.Enum()); name != nil {
			return string(name.Name())
		}
		return int32(v.Enum())
	default:
		return v.Interface()
	}
}
