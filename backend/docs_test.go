package backend

import (
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/statebuffer"
)

// documentedTable is the rows of all such tables in docs/parameters.md.
func documentedTable(t *testing.T, head string) (rows [][]string) {
	t.Helper()
	return tableOf(t, "parameters.md", head)
}

// tableOf returns the rows of all tables in a page of docs whose head begins with
// the given text, without the heads. Cells have no backquotes.
func tableOf(t *testing.T, name, head string) (rows [][]string) {
	t.Helper()
	page, err := os.ReadFile("../docs/" + name)
	require.NoError(t, err)
	tables := strings.Split(string(page), "\n"+head)[1:]
	require.NotEmpty(t, tables, "a table that begins with %s", head)
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

// TestDocumentedParameters: the page has every parameter, no other one, and the
// defaults that they have.
func TestDocumentedParameters(t *testing.T) {
	r := &paramReader{known: map[string]bool{}, faulty: map[string]bool{}}
	r.parameters()
	plain, _, err := ParseParameters(nil)
	require.NoError(t, err)
	var documented []string
	for _, cells := range documentedTable(t, "| Parameter |") {
		name, fallback := cells[0], cells[2]
		documented = append(documented, name)
		if fallback == "none" {
			continue
		}
		given, warnings, err := ParseParameters(map[string]Value{name: {fallback}})
		require.NoError(t, err, name)
		require.Empty(t, warnings, name)
		given.RatioGiven, given.LogGiven = plain.RatioGiven, plain.LogGiven
		require.Equal(t, plain, given, "the default of %s", name)
	}
	slices.Sort(documented)
	require.Equal(t, slices.Sorted(maps.Keys(r.known)), documented)
}

// TestDocumentedWords: the words that the page allows are those that are allowed.
func TestDocumentedWords(t *testing.T) {
	for _, cells := range documentedTable(t, "| Parameter |") {
		name, kind, words := cells[0], cells[1], cells[3]
		p, _, err := ParseParameters(map[string]Value{name: {"neither"}})
		if name == "ort_ep" { // only an instance on a GPU takes it to heart
			_, err = p.provider("gpu")
		}
		switch kind {
		case "enum":
			require.ErrorContains(t, err, "want one of "+words, name)
		case "bool":
			require.ErrorContains(t, err, "want one of 0, 1, false, true", name)
		case "integer", "number":
			require.ErrorContains(t, err, "number", name)
		case "assignments":
			require.ErrorContains(t, err, "NAME = VALUE", name)
		case "string", "path":
			continue
		default:
			t.Errorf("parameter %s is of the type %q, which is none", name, kind)
		}
	}
}

// TestDocumentedPairs: what the page says is refused is, in these words.
func TestDocumentedPairs(t *testing.T) {
	refused := 0
	for _, cells := range documentedTable(t, "| Value |") {
		_, message, found := strings.Cut(cells[1], "error: ")
		if !found {
			continue
		}
		refused++
		_, err := ParsePairs(cells[0])
		require.ErrorContains(t, err, strings.TrimPrefix(message, "... "))
	}
	require.Equal(t, 3, refused)
}

// TestDocumentedSlots computes the examples of the page.
func TestDocumentedSlots(t *testing.T) {
	rows := documentedTable(t, "| `max_candidate_sequences` |")
	require.NotEmpty(t, rows)
	for _, cells := range rows {
		var lazy *statebuffer.LazyBuffers
		if sizes := regexp.MustCompile(`\d+`).FindAllString(cells[3], -1); len(sizes) == 4 {
			lazy = &statebuffer.LazyBuffers{Initial: atoi(t, sizes[0]), Subsequent: atoi(t, sizes[1]), AllocThreshold: atoi(t, sizes[2]), DeallocThreshold: atoi(t, sizes[3])}
		}
		ratio, err := strconv.ParseFloat(cells[2], 32)
		require.NoError(t, err)
		require.Equal(t, atoi(t, cells[4]), int(float32(atoi(t, cells[0]))*float32(ratio)), "%v", cells)
		sizing, err := statebuffer.NewSizing(atoi(t, cells[0]), atoi(t, cells[1]), float32(ratio), lazy)
		if cells[5] == "error" {
			require.Error(t, err, "%v", cells)
			continue
		}
		require.NoError(t, err, "%v", cells)
		require.Equal(t, []int{atoi(t, cells[5]), atoi(t, cells[6])}, []int{sizing.Initial, sizing.Total()}, "%v", cells)
	}
}

// TestDocumentedBatchLine: the line of each batch goes where the page says.
func TestDocumentedBatchLine(t *testing.T) {
	rows := documentedTable(t, "| `logging_level` | `batch_info_logging_level`")
	require.Len(t, rows, 3)
	for _, cells := range rows {
		logging, _, _ := strings.Cut(cells[0], " ")
		for i, batchInfo := range []string{"INFO", "VERBOSE", "NONE"} {
			p, _, err := ParseParameters(map[string]Value{"logging_level": {logging}, "batch_info_logging_level": {batchInfo}})
			require.NoError(t, err)
			got := map[slog.Level]string{slog.LevelInfo: "INFO", slog.LevelDebug: "verbose"}[batchLevel(p)]
			require.Equal(t, cells[1+i], got, "%s and %s", logging, batchInfo)
		}
	}
}

func atoi(t *testing.T, text string) int {
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// TestReadmeShowsTheLostState: the message that README shows is what the request gets.
func TestReadmeShowsTheLostState(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	shown := regexp.MustCompile("(?m)^sequence 7: .*$").FindString(string(readme))
	require.NotEmpty(t, shown)

	s := newServer(t, configEdit(func(c *Config) { c.Sequence.MaxIdleMicroseconds = 10_000_000 }))
	s.batch(startOf(7), startOf(8)).ok()
	s.now += 31 * time.Second
	s.forget(7, 8)
	s.batch(startOf(8)).ok() // more than twice the limit and ten seconds: 7 is dropped
	s.now += 12300 * time.Millisecond
	require.EqualError(t, s.batch(nextOf(7)).answers[0].err, shown)
}
