package config

import (
	"fmt"
	"strings"

	"tritonstateful/internal/status"
)

// Pair names a state: the model reads it from Input and writes it to Output.
type Pair struct{ Input, Output string }

// parsePairs reads the parameter state_pairs: <<<input, output>>>, repeated, with
// anything that is not itself a bracket between the pairs. Blanks around a name
// do not count; the second name may hold commas. Errors show where they are.
func parsePairs(text string) ([]Pair, error) {
	const open, closing = "<<<", ">>>"
	var pairs []Pair
	for at := 0; ; {
		start := strings.Index(text[at:], open)
		if start < 0 {
			if err := strayBracket(text, at, len(text)); err != nil {
				return nil, err
			}
			return pairs, nil
		}
		start += at
		if err := strayBracket(text, at, start); err != nil {
			return nil, err
		}
		body := start + len(open)
		end := strings.Index(text[body:], closing)
		if end < 0 {
			return nil, pairError(text, start, "has no closing >>>")
		}
		end += body
		pair, problem := splitPair(text[body:end])
		if problem != "" {
			return nil, pairError(text, start, problem)
		}
		for _, p := range pairs {
			if p.Input == pair.Input || p.Output == pair.Output {
				return nil, pairError(text, start, fmt.Sprintf("names a tensor that the pair <<<%s, %s>>> names already", p.Input, p.Output))
			}
		}
		pairs = append(pairs, pair)
		at = end + len(closing)
	}
}

// splitPair splits the inside of the brackets; a problem is what is wrong with it.
func splitPair(body string) (Pair, string) {
	if strings.ContainsAny(body, "<>") {
		return Pair{}, "has a misplaced bracket"
	}
	if strings.ContainsAny(body, "\n\t\r") {
		return Pair{}, "is broken by a line end or a tab"
	}
	input, output, ok := strings.Cut(body, ",")
	if !ok {
		return Pair{}, "has no comma between the input and the output name"
	}
	pair := Pair{strings.TrimSpace(input), strings.TrimSpace(output)}
	if pair.Input == "" || pair.Output == "" {
		return Pair{}, "has an empty name"
	}
	return pair, ""
}

// strayBracket finds a bracket between pairs, where none belongs.
func strayBracket(text string, from, to int) error {
	if i := strings.IndexAny(text[from:to], "<>"); i >= 0 {
		return pairError(text, from+i, "is a bracket outside of a pair")
	}
	return nil
}

func pairError(text string, at int, problem string) error {
	excerpt := text[at:]
	if len(excerpt) > 40 {
		excerpt = excerpt[:40] + "…"
	}
	return status.Errorf(status.InvalidArg, "parameter state_pairs: at character %d, %q %s: want <<<input, output>>> for each state", at+1, excerpt, problem)
}

// pairMarks are the words that mark a line with pairs in a graph's doc string.
var pairMarks = [][2]string{{"InputState", "OutputState"}, {"PastValueInput", "PastValueOutput"}}

// PairsFromDescription finds pairs in a graph's doc string: on lines that hold
// both words of a mark, from the input's word on. If the output's word comes
// first, so do the outputs in the pairs. What follows a colon in a name is a
// remark.
func PairsFromDescription(doc string) ([]Pair, error) {
	var pairs []Pair
	for _, mark := range pairMarks {
		for line := range strings.Lines(doc) {
			in, out := strings.Index(line, mark[0]), strings.Index(line, mark[1])
			if in < 0 || out < 0 {
				continue
			}
			found, err := parsePairs(strings.TrimRight(line[in:], "\r\n"))
			if err != nil {
				return nil, fmt.Errorf("in the model's doc string: %w", err)
			}
			for _, p := range found {
				p.Input, p.Output = beforeColon(p.Input), beforeColon(p.Output)
				if out < in {
					p.Input, p.Output = p.Output, p.Input
				}
				pairs = append(pairs, p)
			}
		}
	}
	return pairs, nil
}

func beforeColon(name string) string {
	name, _, _ = strings.Cut(name, ":")
	return strings.TrimSpace(name)
}
