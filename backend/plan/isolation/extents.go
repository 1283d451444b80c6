package isolation

import (
	"iter"
	"slices"
)

// usualExtents are what open axes have in runs, the most telling first. 512 and 576 are what
// models of 16 kHz audio want. Extents of 2 and of 1 come last: they are stretched too easily,
// to any batch.
var usualExtents = []int64{3, 4, 5, 8, 16, 64, 100, 512, 576, 2, 1}

// furtherExtents are tried where the model runs with none of the usual ones, because it wants
// just one: all small ones, and what windows and frames of audio have.
var furtherExtents = slices.DeleteFunc(append(upTo(64), 80, 96, 120, 128, 160, 192, 200, 240, 250, 256, 300, 320, 384, 400, 441, 480, 600, 640, 768, 800, 882, 960, 1000, 1024, 1280, 1536, 1600), func(extent int64) bool {
	return slices.Contains(usualExtents, extent)
})

func upTo(most int64) (extents []int64) {
	for extent := range most {
		extents = append(extents, extent+1)
	}
	return extents
}

// settings lists what is tried, the most telling first. If no run succeeds while it goes on,
// further extents follow, and when the model runs with one of them, that one with all else:
// from then on it is the only one.
func (t *Trial) settings() iter.Seq[setting] {
	return func(yield func(setting) bool) {
		before := t.succeeded
		if !t.combine(yield) || t.succeeded > before {
			return
		}
		for _, c := range []contents{random, ones} {
			for _, e := range furtherExtents {
				if !yield(setting{e, statesAlike, c}) {
					return
				}
				if t.succeeded > before {
					t.extents = []int64{e}
					t.combine(yield)
					return
				}
			}
		}
	}
}

// combine lists the extents of the trial with all contents and all states. It reports whether
// to go on.
func (t *Trial) combine(yield func(setting) bool) bool {
	for _, c := range []contents{random, zeroOne, integers, ones, zeros} {
		for _, s := range []stateExtent{statesAlike, statesBegin, statesOne} {
			for _, e := range t.extents {
				if !yield(setting{e, s, c}) {
					return false
				}
			}
		}
	}
	return true
}

// StateExtent returns an extent of the open axes of states with which the model runs: 1 if it
// does, or else the first that is found. It is 1 where none is.
func (t *Trial) StateExtent() int64 {
	for _, one := range []bool{true, false} {
		for s := range t.settings() {
			if s.states == statesBegin || one && s.states == statesAlike && s.extent != 1 {
				continue
			}
			if _, err := t.runOne(s); err != nil {
				continue
			}
			if s.states == statesOne {
				return 1
			}
			return s.extent
		}
	}
	return 1
}
