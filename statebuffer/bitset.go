package statebuffer

import "math/bits"

// bitset is a set of small numbers. A bit of summary tells of each word whether it
// has any, so that finding one takes a look at a few words, however many there are:
// 25 for 100,000 numbers.
type bitset struct{ words, summary []uint64 }

func newBitset(numbers int) bitset {
	words := (numbers + 63) / 64
	return bitset{make([]uint64, words), make([]uint64, (words+63)/64)}
}

// extend makes place for so many numbers.
func (s *bitset) extend(numbers int) {
	words := (numbers + 63) / 64
	s.words = append(s.words, make([]uint64, max(0, words-len(s.words)))...)
	s.summary = append(s.summary, make([]uint64, max(0, (words+63)/64-len(s.summary)))...)
}

func (s *bitset) add(number int) {
	s.words[number/64] |= 1 << (number % 64)
	s.summary[number/64/64] |= 1 << (number / 64 % 64)
}

func (s *bitset) remove(number int) {
	word := number / 64
	if s.words[word] &^= 1 << (number % 64); s.words[word] == 0 {
		s.summary[word/64] &^= 1 << (word % 64)
	}
}

// next is the least number of the set that is at least from, or negative.
func (s *bitset) next(from int) int {
	word := from / 64
	if word >= len(s.words) {
		return -1
	}
	if rest := s.words[word] >> (from % 64); rest != 0 {
		return from + bits.TrailingZeros64(rest)
	}
	word++ // the next one that has any
	for at := word / 64; at < len(s.summary); at++ {
		some := s.summary[at]
		if at == word/64 {
			some &= ^uint64(0) << (word % 64)
		}
		if some != 0 {
			word = at*64 + bits.TrailingZeros64(some)
			return word*64 + bits.TrailingZeros64(s.words[word])
		}
	}
	return -1
}
