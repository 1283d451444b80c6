package statebuffer

import (
	"reflect"
	"testing"
)

// TestSequencesAreSmall: an idle sequence may take 200 bytes besides its states, and there
// are its entry in a map and the rounding of slots, too.
func TestSequencesAreSmall(t *testing.T) {
	const most = 128 // a size class of Go's allocator
	if size := reflect.TypeFor[Sequence]().Size(); size > most {
		t.Errorf("a sequence takes %d bytes: want at most %d", size, most)
	}
}
