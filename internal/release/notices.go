package release

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// rule is a line above and below the heading of a part.
var rule = strings.Repeat("=", 100) + "\n"

// Notices is the text of THIRD_PARTY_NOTICES.txt: what is in the archive that others made, and all of their licenses.
func Notices(parts []Part) string {
	var b strings.Builder
	b.WriteString("This archive contains software of others, under these licenses. Their texts follow in the same order.\n\n")
	for i := range parts {
		b.WriteString(heading(&parts[i]) + "\n")
	}
	for i := range parts {
		part := &parts[i]
		fmt.Fprintf(&b, "\n%s%s\nIn: %s\n%s", rule, heading(part), strings.Join(part.Files, ", "), rule)
		for _, text := range part.Texts {
			fmt.Fprintf(&b, "\n--- %s ---\n\n%s\n", text.Name, strings.TrimRight(strings.ReplaceAll(utf8Text(text.Content), "\r\n", "\n"), "\n"))
		}
	}
	return b.String()
}

// utf8Text returns a text in UTF-8. Licenses in another encoding are in Latin-1, whose letters are the first of Unicode.
func utf8Text(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for i := range len(text) {
		b.WriteRune(rune(text[i]))
	}
	return b.String()
}

// heading is the line of a part in the notices.
func heading(p *Part) string { return fmt.Sprintf("%s %s (%s)", p.Name, p.Version, p.License) }

// noticed returns the headings of the parts of whose licenses the notices have a text.
func noticed(notices string) map[string]bool {
	found := map[string]bool{}
	sections := strings.Split(notices, rule) // what is above, then a heading and its texts in turn
	for i := 1; i+1 < len(sections); i += 2 {
		title, _, _ := strings.Cut(sections[i], " (")
		found[title] = strings.Contains(sections[i+1], "--- ")
	}
	return found
}
