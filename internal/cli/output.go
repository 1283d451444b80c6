package cli

import (
	"encoding/json"
	"io"
	"os"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// A resultWriter is where a verb writes what it has found. It keeps the first error: a result that is cut off, because the disk is
// full, must not look like a whole one.
type resultWriter struct {
	io.Writer
	err error
}

// Write implements io.Writer.
func (r *resultWriter) Write(p []byte) (int, error) {
	n, err := r.Writer.Write(p)
	if err != nil && r.err == nil {
		r.err = err
	}
	return n, err
}

// emit prints the result of a verb: v as JSON with --json, else the text.
func (c *command) emit(v any, asText func(io.Writer)) error {
	if !c.json {
		asText(c.stdout)
		return nil
	}
	encoder := json.NewEncoder(c.stdout)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// palette colors words, or leaves them as they are.
type palette struct{ on bool }

// colors are those of a terminal. NO_COLOR turns them off (no-color.org), and so does any other place to write to.
func (c *command) colors(w io.Writer) palette {
	if r, is := w.(*resultWriter); is {
		w = r.Writer
	}
	file, isFile := w.(*os.File)
	return palette{isFile && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(file.Fd()))}
}

func (p palette) good(s string) string { return p.paint(s, text.FgGreen) }
func (p palette) bad(s string) string  { return p.paint(s, text.FgRed) }
func (p palette) note(s string) string { return p.paint(s, text.FgYellow) }
func (p palette) bold(s string) string { return p.paint(s, text.Bold) }

func (p palette) paint(s string, color text.Color) string {
	if !p.on {
		return s
	}
	return color.EscapeSeq() + s + text.Reset.EscapeSeq()
}

// newTable is a table without lines, whose columns are two spaces apart: easy to read, and to cut with awk.
func newTable(header ...any) table.Writer {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatDefault
	style.Options = table.OptionsNoBordersAndSeparators
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	if len(header) > 0 {
		t.AppendHeader(header)
	}
	return t
}
