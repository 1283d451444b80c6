// Package docstable reads the tables of the pages in docs, so that tests can compare
// them with the code.
package docstable

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// Rows returns the rows of the table in a page of docs whose head begins so, without
// the head, and cells without backquotes. It fails the test where there is none.
func Rows(t *testing.T, page, head string) (rows [][]string) {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	text, err := os.ReadFile(filepath.Join(filepath.Dir(here), "..", "..", "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "\n"+head)
	if !found {
		t.Fatalf("docs/%s: no table begins with %s", page, head)
	}
	for i, line := range slices.Collect(strings.Lines(table)) {
		if i < 2 { // the rest of the head, and the rule
			continue
		}
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i, cell := range cells {
			cells[i] = strings.TrimSpace(strings.ReplaceAll(cell, "`", ""))
		}
		rows = append(rows, cells)
	}
	return rows
}
