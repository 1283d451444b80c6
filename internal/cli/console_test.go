package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// consoleBlock is a block of a page that shows commands after a $, and what they print.
var consoleBlock = regexp.MustCompile("(?s)```console\n(.*?)```")

// checkPage runs the commands of a page of docs/ in the working directory, and compares what they print. There must be
// some. A last line "(exit code N)" is the exit code, if it is not 0. The pairs are words of the page, such as paths, and
// what they are in the test. With -update, the page is written.
func checkPage(t *testing.T, page string, pairs ...string) {
	t.Helper()
	path := filepath.Join(docs, page)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	back := slices.Clone(pairs)
	slices.Reverse(back)
	ours, shown := strings.NewReplacer(pairs...), strings.NewReplacer(back...)
	commands := 0
	now := consoleBlock.ReplaceAllStringFunc(string(text), func(block string) string {
		var b strings.Builder
		b.WriteString("```console\n")
		for _, part := range strings.Split(strings.TrimPrefix(block, "```console"), "\n$ ")[1:] {
			line, _, _ := strings.Cut(part, "\n")
			fmt.Fprintf(&b, "$ %s\n%s", line, shown.Replace(printed(t, ours.Replace(line))))
			commands++
		}
		b.WriteString("```")
		return b.String()
	})
	require.NotZero(t, commands)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(now), 0o600))
		return
	}
	require.Equal(t, string(text), now, "what the page shows; go test ./internal/cli -update writes it")
}

// printed runs a command line, and returns what it prints.
func printed(t *testing.T, line string) string {
	t.Helper()
	words := shellWords(line)
	require.Equal(t, "tritonstateful", words[0], "a page shows a command that is not ours: %s", line)
	code, out, errs := run(t, words[1:]...)
	if code != exitFine {
		errs += fmt.Sprintf("(exit code %d)\n", code)
	}
	return out + errs
}

// docs is the folder of the pages, which tests find from any working directory.
var docs = func() string {
	path, err := filepath.Abs(filepath.Join("..", "..", "docs"))
	if err != nil {
		panic(err)
	}
	return path
}()

// shellWords splits a command line at spaces that are not in single quotes.
func shellWords(line string) (words []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			words[len(words)-1] += part
			continue
		}
		fields := strings.Split(part, " ")
		if len(words) > 0 {
			words[len(words)-1] += fields[0]
			fields = fields[1:]
		}
		words = append(words, fields...)
	}
	return words
}
