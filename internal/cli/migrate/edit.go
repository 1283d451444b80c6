package migrate

import (
	"cmp"
	"slices"
	"strings"
)

// An editor changes a text at some places.
type editor struct {
	text    string
	fields  []*field
	changes []Change
	open    []string
	edits   []edit
}

type edit struct {
	start, end int
	text       string
}

// A Change is what was changed, and why.
type Change struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

func (e *editor) note(what, why string) { e.changes = append(e.changes, Change{what, why}) }

// remove removes a part of the text with the lines that it leaves empty, and with the comment
// right above it.
func (e *editor) remove(start, end int) {
	lineStart := strings.LastIndexByte(e.text[:start], '\n') + 1
	rest := e.text[end:]
	lineEnd := strings.IndexByte(rest, '\n') + 1
	if lineEnd == 0 {
		lineEnd = len(rest)
	}
	after := strings.TrimLeft(rest[:lineEnd], ",; \t")
	if strings.TrimSpace(e.text[lineStart:start]) != "" || strings.TrimSpace(after) != "" && after[0] != '#' {
		end += len(rest[:lineEnd]) - len(after)
		e.edits = append(e.edits, edit{start, end, ""})
		return
	}
	for lineStart > 0 {
		previous := strings.LastIndexByte(e.text[:lineStart-1], '\n') + 1
		if !strings.HasPrefix(strings.TrimSpace(e.text[previous:lineStart]), "#") {
			break
		}
		lineStart = previous
	}
	e.edits = append(e.edits, edit{lineStart, end + lineEnd, ""})
}

func (e *editor) replace(f *field, text string) {
	e.edits = append(e.edits, edit{f.start, f.end, text})
}

// insert adds lines at a place, which is the beginning of a line or of a body.
func (e *editor) insert(at int, text string) {
	e.edits = append(e.edits, edit{at, at, text})
}

// appendLine adds a line at the end.
func (e *editor) appendLine(line string) {
	if !strings.HasSuffix(e.text, "\n") && !slices.ContainsFunc(e.edits, func(x edit) bool { return x.start == len(e.text) }) {
		line = "\n" + line
	}
	e.insert(len(e.text), line+"\n")
}

// result is the text with all changes. They do not overlap.
func (e *editor) result() string {
	slices.SortStableFunc(e.edits, func(a, b edit) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end)) })
	var b strings.Builder
	at := 0
	for _, x := range e.edits {
		if x.start < at { // inside of what is removed already
			continue
		}
		b.WriteString(e.text[at:x.start])
		b.WriteString(x.text)
		at = x.end
	}
	b.WriteString(e.text[at:])
	return b.String()
}

// removeField removes all fields of a name.
func (e *editor) removeField(fields []*field, name, why string) {
	for _, f := range named(fields, name) {
		e.remove(f.start, f.end)
		e.note("remove "+name, why)
	}
}

// removeMessages removes those of a repeated field that are chosen, and the field if none is left.
func (e *editor) removeMessages(fields []*field, name string, chosen func(body []*field) bool) (removed [][]*field) {
	for _, f := range named(fields, name) {
		if f.message {
			if chosen(f.fields) {
				e.remove(f.start, f.end)
				removed = append(removed, f.fields)
			}
			continue
		}
		gone := 0
		var parts []*element
		for _, x := range f.elements {
			if chosen(x.fields) {
				parts, gone = append(parts, x), gone+1
				removed = append(removed, x.fields)
			}
		}
		if gone == len(f.elements) && gone > 0 {
			e.remove(f.start, f.end)
			continue
		}
		for _, x := range parts {
			e.remove(x.start, x.end)
		}
		if n := len(f.elements); gone > 0 && slices.Contains(parts, f.elements[n-1]) {
			e.dropComma(f, parts)
		}
	}
	return removed
}

// dropComma removes the comma after the last element that stays, when those after it are removed.
func (e *editor) dropComma(f *field, gone []*element) {
	for i := len(f.elements) - 1; i >= 0; i-- {
		if x := f.elements[i]; !slices.Contains(gone, x) {
			if comma := strings.IndexByte(e.text[x.end:f.elements[i+1].start], ','); comma >= 0 {
				e.edits = append(e.edits, edit{x.end + comma, x.end + comma + 1, ""})
			}
			return
		}
	}
}

// parameter returns the value of a parameter, and the field with it.
func (e *editor) parameter(name string) (value string, found bool) {
	for _, body := range messages(e.fields, "parameters") {
		if valueOf(body, "key") == name {
			for _, v := range named(body, "value") {
				value, found = valueOf(v.fields, "string_value"), true
			}
		}
	}
	return value, found
}

// addParameter adds a parameter at the end.
func (e *editor) addParameter(name, value, why string) {
	e.appendLine("parameters { key: " + quote(name) + " value { string_value: " + quote(value) + " } }")
	e.note("add the parameter "+name+" = "+value, why)
}

func quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text) + `"`
}

// setBackend writes the field backend. The platform, which says the same, is removed.
func (e *editor) setBackend(name string) {
	line := "backend: " + quote(name)
	given, platform := named(e.fields, "backend"), named(e.fields, "platform")
	switch {
	case len(given) > 0:
		e.removeField(e.fields, "platform", "backend says the same")
		if given[0].value == name {
			return
		}
		e.replace(given[0], line)
	case len(platform) > 0:
		e.replace(platform[0], line)
	default:
		e.insert(0, line+"\n")
	}
	e.note("write "+line, "the backend that serves the model")
}
