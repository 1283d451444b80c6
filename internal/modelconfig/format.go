package modelconfig

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// lineWidth is up to where a message is written in one line.
const lineWidth = 110

// Comments are what is written above fields and elements of lists, by their paths: "max_batch_size", "input[0]",
// "sequence_batching.oldest", `parameters["state_pairs"]`. A text of several lines becomes as many comments.
type Comments map[string]string

// Format writes a config.pbtxt: fields in the order of Triton's description, but maps at the end. The text is the same for
// the same configuration.
func Format(m *ModelConfig, comments Comments) string {
	w := &formatter{comments: comments}
	w.message(m.ProtoReflect(), "", "")
	return w.text.String()
}

type formatter struct {
	comments Comments
	text     strings.Builder
}

// message writes the fields of a message, each on lines of its own.
func (w *formatter) message(m protoreflect.Message, path, indent string) {
	for _, f := range populated(m) {
		at, v := path+string(f.Name()), m.Get(f)
		switch {
		case f.IsMap():
			for _, key := range keys(v.Map()) {
				w.comment(fmt.Sprintf("%s[%q]", at, key.String()), indent)
				w.line(indent, entry(f, key, v.Map().Get(key)))
			}
		case f.IsList() && f.Message() != nil:
			w.list(f, v.List(), at, indent)
		default:
			w.comment(at, indent)
			if text := inline(f, v); f.Message() == nil || len(indent+text) <= lineWidth && !w.comments.below(at) {
				w.line(indent, text)
				continue
			}
			w.line(indent, string(f.Name())+" {")
			w.message(v.Message(), at+".", indent+"  ")
			w.line(indent, "}")
		}
	}
}

// list writes a list of messages, an element for each line.
func (w *formatter) list(f protoreflect.FieldDescriptor, list protoreflect.List, path, indent string) {
	w.comment(path, indent)
	w.line(indent, string(f.Name())+" [")
	for i := range list.Len() {
		at, comma := fmt.Sprintf("%s[%d]", path, i), ","
		if i == list.Len()-1 {
			comma = ""
		}
		w.comment(at, indent+"  ")
		if text := block(list.Get(i).Message()); len(indent+text)+3 <= lineWidth && !w.comments.below(at) {
			w.line(indent+"  ", text+comma)
			continue
		}
		w.line(indent+"  ", "{")
		w.message(list.Get(i).Message(), at+".", indent+"    ")
		w.line(indent+"  ", "}"+comma)
	}
	w.line(indent, "]")
}

// below reports whether something inside of a message has a comment, so that it needs lines of its own.
func (c Comments) below(path string) bool {
	for at := range c {
		if strings.HasPrefix(at, path+".") || strings.HasPrefix(at, path+"[") {
			return true
		}
	}
	return false
}

func (w *formatter) comment(path, indent string) {
	if text := w.comments[path]; text != "" {
		for line := range strings.SplitSeq(text, "\n") {
			w.line(indent, strings.TrimRight("# "+line, " "))
		}
	}
}

func (w *formatter) line(indent, text string) {
	w.text.WriteString(indent + text + "\n")
}

// controlKind is the kind of a control, which is written also where it has its default: that is a start.
const controlKind = "inference.ModelSequenceBatching.Control.kind"

// populated are the fields that have a value, maps last.
func populated(m protoreflect.Message) (fields []protoreflect.FieldDescriptor) {
	all := m.Descriptor().Fields()
	for _, maps := range []bool{false, true} {
		for i := range all.Len() {
			if f := all.Get(i); f.IsMap() == maps && (m.Has(f) || f.FullName() == controlKind) {
				fields = append(fields, f)
			}
		}
	}
	return fields
}

// keys are those of a map, sorted.
func keys(m protoreflect.Map) (sorted []protoreflect.MapKey) {
	m.Range(func(key protoreflect.MapKey, _ protoreflect.Value) bool {
		sorted = append(sorted, key)
		return true
	})
	slices.SortFunc(sorted, func(a, b protoreflect.MapKey) int { return strings.Compare(a.String(), b.String()) })
	return sorted
}

// inline is a field in one line.
func inline(f protoreflect.FieldDescriptor, v protoreflect.Value) string {
	name := string(f.Name())
	switch {
	case f.IsMap():
		var entries []string
		for _, key := range keys(v.Map()) {
			entries = append(entries, entry(f, key, v.Map().Get(key)))
		}
		return strings.Join(entries, " ")
	case f.IsList():
		elements := make([]string, v.List().Len())
		for i := range elements {
			elements[i] = element(f, v.List().Get(i))
		}
		if f.Message() != nil {
			return name + " [ " + strings.Join(elements, ", ") + " ]"
		}
		return name + ": [ " + strings.Join(elements, ", ") + " ]"
	case f.Message() != nil:
		return name + " " + element(f, v)
	default:
		return name + ": " + element(f, v)
	}
}

// entry is one entry of a map.
func entry(f protoreflect.FieldDescriptor, key protoreflect.MapKey, value protoreflect.Value) string {
	separator := ": "
	if f.MapValue().Message() != nil {
		separator = " "
	}
	return fmt.Sprintf("%s { key: %s value%s%s }", f.Name(), element(f.MapKey(), key.Value()), separator, element(f.MapValue(), value))
}

// block is a message in one line, in braces.
func block(m protoreflect.Message) string {
	text := "{ "
	for _, f := range populated(m) {
		text += inline(f, m.Get(f)) + " "
	}
	return text + "}"
}

// element is one value.
func element(f protoreflect.FieldDescriptor, v protoreflect.Value) string {
	switch value := single(f, v).(type) {
	case map[string]any:
		return block(v.Message())
	case string:
		if f.Enum() != nil {
			return value
		}
		return quoted(value)
	default:
		return fmt.Sprint(value)
	}
}

// quoted is a string as text protobuf has it, which has no escapes for characters but for bytes.
func quoted(text string) string {
	quote := `"`
	if strings.Contains(text, `"`) && !strings.Contains(text, `'`) {
		quote = `'`
	}
	var b strings.Builder
	b.WriteString(quote)
	for _, c := range []byte(text) {
		switch {
		case c == quote[0] || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c < ' ':
			b.WriteString(`\` + strconv.FormatInt(int64(c)+01000, 8)[1:])
		default:
			b.WriteByte(c)
		}
	}
	b.WriteString(quote)
	return b.String()
}
