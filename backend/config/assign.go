package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Assignment is one "name = value" of a parameter that says something of
// several tensors. A * or a {word} in the name stands for any string.
type Assignment struct {
	Name, Value string
	used        bool
}

// parseAssignments splits "name = value; name = value"; a line end also parts.
func parseAssignments(text string) ([]Assignment, error) {
	var all []Assignment
	for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ';' || r == '\n' }) {
		if strings.TrimSpace(part) == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || name == "" || value == "" {
			return nil, fmt.Errorf("%q is not of the form NAME = VALUE", strings.TrimSpace(part))
		}
		all = append(all, Assignment{Name: name, Value: value})
	}
	return all, nil
}

// Lookup returns the value for a tensor, see [Find], and notes that it is used.
func Lookup(all []Assignment, name string) (value string, ok bool) {
	found, ok := Find(all, name)
	if !ok {
		return "", false
	}
	return found.Use(), true
}

// Find returns what is assigned to a tensor: by its own name, or else by the first pattern
// that matches.
func Find(all []Assignment, name string) (found *Assignment, ok bool) {
	for i := range all {
		if all[i].Name == name {
			return &all[i], true
		}
		if _, match := MatchPattern(all[i].Name, name); match && found == nil {
			found = &all[i]
		}
	}
	return found, found != nil
}

// Use returns the value and notes that it is used, for [Unused].
func (a *Assignment) Use() string {
	a.used = true
	return a.Value
}

// Unused lists the names that lookup never gave a value for.
func Unused(all []Assignment) (names []string) {
	for i := range all {
		if !all[i].used {
			names = append(names, all[i].Name)
		}
	}
	return names
}

// wildcard is a way to write "any string" in a pattern: * or a word in braces.
var wildcard = regexp.MustCompile(`\*|\{\w+\}`)

// IsPattern reports whether a name holds a wildcard.
func IsPattern(name string) bool { return wildcard.MatchString(name) }

// MatchPattern reports whether name is pattern with any string for each wildcard,
// and the parts of name that these stand for. The shortest possible ones are taken first.
func MatchPattern(pattern, name string) (matches []string, ok bool) {
	parts := wildcard.Split(pattern, -1)
	if len(parts) == 1 {
		return nil, pattern == name
	}
	rest, ok := strings.CutPrefix(name, parts[0])
	if !ok {
		return nil, false
	}
	for i, part := range parts[1:] {
		if i == len(parts)-2 { // the last part ends the name
			text, ok := strings.CutSuffix(rest, part)
			return append(matches, text), ok
		}
		at := strings.Index(rest, part)
		if at < 0 {
			return nil, false
		}
		matches = append(matches, rest[:at])
		rest = rest[at+len(part):]
	}
	return matches, true
}

// FillPattern puts strings in place of the wildcards.
func FillPattern(pattern string, matches []string) string {
	parts := wildcard.Split(pattern, -1)
	var b strings.Builder
	for i, part := range parts {
		b.WriteString(part)
		if i < len(parts)-1 && i < len(matches) {
			b.WriteString(matches[i])
		}
	}
	return b.String()
}

// CommonPattern returns a pattern that matches all of these names, or the only one.
func CommonPattern(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	common := func(of func(name string, n int) string) (part string) {
		for n := 1; n <= len(names[0]); n++ {
			next := of(names[0], n)
			if slices.ContainsFunc(names, func(name string) bool { return n > len(name) || of(name, n) != next }) {
				break
			}
			part = next
		}
		return part
	}
	prefix := common(func(name string, n int) string { return name[:n] })
	rest := make([]string, len(names))
	for i, name := range names {
		rest[i] = strings.TrimPrefix(name, prefix)
	}
	names = rest
	return prefix + "*" + common(func(name string, n int) string { return name[len(name)-n:] })
}
