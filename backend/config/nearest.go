package config

import "strings"

// nearest is the candidate that takes the fewest edits, whatever the case of the
// letters, or "" if none is close: of a long name that takes more than a few edits, too many
// are like it by their usual words. Candidates are in lower case.
func nearest(name string, candidates []string) string {
	best, distance := "", min(1+len(name)/3, maxEdits)
	name = strings.ToLower(name)
	for _, c := range candidates {
		if d := edits(name, c); d <= distance && (best == "" || d < distance) {
			best, distance = c, d
		}
	}
	return best
}

// maxEdits is how far a name may be from the one that is meant.
const maxEdits = 5

// edits is the Levenshtein distance.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
