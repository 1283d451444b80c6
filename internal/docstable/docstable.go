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

// Rows returns the rows of all tables in a page of docs whose head begins with the
// given text, without the heads, and cells without backquotes. It fails the test if
// there is no such table.
func Rows(t *testing.T, page, head string) (rows [][]string) {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	text, err := os.ReadFile(filepath.Join(filepath.Dir(here), "..", "..", "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	tables := strings.Split(string(text), "\n"+head)[1:]
	if len(tables) == 0 {
		t.Fatalf("docs/%s: no table begins with %s", page, head)
	}
	for _, table := range tables {
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
	}
	return rows
}
