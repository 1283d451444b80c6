package backend

import (
	"testing"
)

func TestInterleavedSequences(t *testing.T) {
	s := newServer(t)
	s.batch(startOf(7)).ok()
	s.batch(startOf(8), nextOf(7)).ok()
	s.batch(nextOf(8), startOf(9), nextOf(7)).ok()
	s.batch(nextOf(9), nextOf(8)).ok()
	s.batch(endOf(7), endOf(8), endOf(9)).ok()
}
