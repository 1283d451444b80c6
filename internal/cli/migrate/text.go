package migrate

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
)

// A field is one of a text protobuf: name, and a value, a message or a list.
type field struct {
	name       string
	start, end int    // in the text, from the name to the value's last byte
	value      string // of a scalar, without quotes
	message    bool
	body       int        // where a message's body begins, after its brace
	fields     []*field   // of a message
	elements   []*element // of a list
}

// An element is one of a list; fields is nil if it is a scalar.
type element struct {
	start, end int
	value      string // of a scalar, without quotes
	fields     []*field
}

// parse finds the fields of a text that is known to be valid.
func parse(text string) ([]*field, error) {
	p := &parser{text: text}
	fields := p.fields()
	p.skip()
	if p.at < len(text) {
		return nil, fmt.Errorf("line %d: %q is not expected", 1+strings.Count(text[:p.at], "\n"), text[p.at])
	}
	return fields, nil
}

type parser struct {
	text string
	at   int
}

func (p *parser) more() bool { return p.at < len(p.text) }

// skip skips blanks, comments and what separates fields.
func (p *parser) skip() {
	for p.more() {
		switch c := p.text[p.at]; {
		case strings.IndexByte(" \t\r\n,;", c) >= 0:
			p.at++
		case c == '#':
			p.line()
		default:
			return
		}
	}
}

func (p *parser) line() {
	for p.more() && p.text[p.at] != '\n' {
		p.at++
	}
}

// word is the text up to a byte that ends a name or a number.
func (p *parser) word() string {
	start := p.at
	for p.more() && strings.IndexByte(" \t\r\n,;:#{}[]<>\"'", p.text[p.at]) < 0 {
		p.at++
	}
	return p.text[start:p.at]
}

func (p *parser) fields() (list []*field) {
	for p.skip(); p.more(); p.skip() {
		f := &field{start: p.at}
		f.name = p.word()
		if f.name == "" {
			return list
		}
		p.blanks()
		if p.more() && p.text[p.at] == ':' {
			p.at++
		}
		p.blanks()
		p.fill(f)
		list = append(list, f)
	}
	return list
}

// blanks skips blanks and comments.
func (p *parser) blanks() {
	for p.more() && strings.IndexByte(" \t\r\n#", p.text[p.at]) >= 0 {
		if p.text[p.at] == '#' {
			p.line()
		} else {
			p.at++
		}
	}
}

// fill reads a value.
func (p *parser) fill(f *field) {
	if !p.more() {
		return
	}
	switch p.text[p.at] {
	case '{', '<':
		p.at++
		f.message, f.body = true, p.at
		f.fields = p.fields()
		p.at++
	case '[':
		p.at++
		for p.skip(); p.more() && p.text[p.at] != ']'; p.skip() {
			f.elements = append(f.elements, p.element())
		}
		p.at++
	default:
		f.value = p.scalar()
	}
	f.end = min(p.at, len(p.text))
}

func (p *parser) element() *element {
	e := &element{start: p.at}
	if c := p.text[p.at]; c == '{' || c == '<' {
		p.at++
		e.fields = p.fields()
		if e.fields == nil {
			e.fields = []*field{}
		}
		p.at++
	} else {
		e.value = p.scalar()
	}
	e.end = min(p.at, len(p.text))
	return e
}

// scalar is a word, or one or more quoted texts.
func (p *parser) scalar() string {
	c := p.text[p.at]
	if c != '"' && c != '\'' {
		word := p.word()
		if word == "" {
			p.at++ // nothing that is valid; do not stay
		}
		return word
	}
	var value strings.Builder
	for p.more() && (p.text[p.at] == '"' || p.text[p.at] == '\'') {
		quote := p.text[p.at]
		for p.at++; p.more() && p.text[p.at] != quote; {
			if p.text[p.at] == '\\' {
				p.escape(&value)
				continue
			}
			value.WriteByte(p.text[p.at])
			p.at++
		}
		p.at++
		end := p.at // more quoted text may follow on the next line
		p.blanks()
		if !p.more() || p.text[p.at] != '"' && p.text[p.at] != '\'' {
			p.at = end
			break
		}
	}
	return value.String()
}

// escape reads an escape of a quoted text.
func (p *parser) escape(to *strings.Builder) {
	p.at++
	if !p.more() {
		return
	}
	c := p.text[p.at]
	switch {
	case c >= '0' && c <= '7':
		to.WriteByte(byte(p.number(3, 8)))
	case c == 'x' || c == 'X':
		p.at++
		to.WriteByte(byte(p.number(2, 16)))
	case c == 'u':
		p.at++
		first := rune(p.number(4, 16))
		if utf16.IsSurrogate(first) && strings.HasPrefix(p.text[p.at:], `\u`) {
			p.at += 2
			first = utf16.DecodeRune(first, rune(p.number(4, 16)))
		}
		to.WriteRune(first)
	case c == 'U':
		p.at++
		to.WriteRune(rune(p.number(8, 16)))
	default:
		if i := strings.IndexByte("abfnrtv", c); i >= 0 {
			c = "\a\b\f\n\r\t\v"[i]
		}
		to.WriteByte(c)
		p.at++
	}
}

// number reads up to so many digits of a base.
func (p *parser) number(digits int, base uint64) (n uint64) {
	for ; digits > 0 && p.more(); digits-- {
		digit, err := strconv.ParseUint(p.text[p.at:p.at+1], int(base), 8)
		if err != nil {
			break
		}
		n = n*base + digit
		p.at++
	}
	return n
}

// named returns the fields of a name.
func named(fields []*field, name string) (list []*field) {
	for _, f := range fields {
		if f.name == name {
			list = append(list, f)
		}
	}
	return list
}

// messages returns the messages of a repeated field, however it is written.
func messages(fields []*field, name string) (bodies [][]*field) {
	for _, f := range named(fields, name) {
		if f.message {
			bodies = append(bodies, f.fields)
		}
		for _, e := range f.elements {
			bodies = append(bodies, e.fields)
		}
	}
	return bodies
}

// valueOf returns the value of a field, or "".
func valueOf(fields []*field, name string) (value string) {
	for _, f := range named(fields, name) {
		value = f.value
	}
	return value
}
