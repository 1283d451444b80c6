package backend

import (
	"log/slog"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/docstable"
	"tritonstateful/statebuffer"
)

// TestDocumentedSlots computes the examples of the page.
func TestDocumentedSlots(t *testing.T) {
	rows := docstable.Rows(t, "parameters.md", "| `max_candidate_sequences` |")
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
	rows := docstable.Rows(t, "parameters.md", "| `logging_level` | `batch_info_logging_level`")
	require.Len(t, rows, 3)
	for _, cells := range rows {
		logging, _, _ := strings.Cut(cells[0], " ")
		for i, batchInfo := range []string{"INFO", "VERBOSE", "NONE"} {
			p, _, err := config.ParseParameters(map[string]config.Value{"logging_level": {String: logging}, "batch_info_logging_level": {String: batchInfo}})
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

	s := newServer(t, configEdit(func(c *config.Config) { c.Sequence.MaxIdleMicroseconds = 10_000_000 }))
	s.batch(startOf(7), startOf(8)).ok()
	s.now += 31 * time.Second
	s.forget(7, 8)
	s.batch(startOf(8)).ok() // more than twice the limit and ten seconds: 7 is dropped
	s.now += 12300 * time.Millisecond
	require.EqualError(t, s.batch(nextOf(7)).answers[0].err, shown)
}
