package batchaxis

import (
	"slices"
	"strings"
	"unicode"
)

// IsBatchName reports whether an axis of this name is the batch by all that
// exporters write: batch, batch_size, x_batch, BatchSize, B, N, bs and the like. A
// name that is computed from others, such as "batch*heads", is none.
func IsBatchName(symbol string) bool {
	name := strings.ToLower(symbol)
	switch name {
	case "b", "n", "bs", "bsz", "nb", "bsize", "nbatch":
		return true
	}
	if !strings.Contains(name, "batch") || isAutoName(name) {
		return false
	}
	plain := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-. ", r) }
	if strings.ContainsFunc(name, func(r rune) bool { return !plain(r) }) || strings.Contains(name, " ") && !strings.HasPrefix(name, "batch ") {
		return false
	}
	return strings.HasSuffix(name, "batch") || strings.HasSuffix(name, "batch_size") || !isLengthName(name)
}

// isAutoName reports whether torch has made the name of an axis from that of its tensor.
func isAutoName(symbol string) bool {
	return strings.Contains(symbol, "_dynamic_axes_") || strings.Contains(symbol, "_dim_")
}

// isLengthName reports whether an axis of this name is a length by all that exporters
// write. Where a model does not mix anything along it, runs cannot tell it from a batch.
func isLengthName(symbol string) bool {
	name := strings.ToLower(symbol)
	switch {
	case name == "t" || name == "l":
		return true
	case isAutoName(name):
		return false
	}
	return slices.ContainsFunc([]string{"len", "time", "seq", "frame", "step", "token", "sample", "past", "total", "chunk", "width", "height"}, func(word string) bool {
		return strings.Contains(name, word)
	})
}
