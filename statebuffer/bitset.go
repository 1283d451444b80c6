package statebuffer

import "math/bits"

// bitset is a set of small numbers. A bit of summary says of each word whether it has
// any, so that the least number is found by looking at few words, however many there
// are: 25 for 100,000 numbers.
type bitset struct{ words, summary []uint64 }

// newBitset makes an empty set, for numbers from 0 on.
func newBitset(numbers int) bitset {
	words := (numbers + 63) / 64
	return bitset{make([]uint64, words), make([]uint64, (words+63)/64)}
}

// fullBitset makes a set of all numbers below a bound.
func fullBitset(numbers int) bitset {
	s := newBitset(numbers)
	for _, words := range [][]uint64{s.words, s.summary} {
		for i := range words {
			words[i] = ^uint64(0) >> max(0, 64*(i+1)-numbers)
		}
		numbers = len(s.words)
	}
	return s
}

// extend makes room for that many numbers.
func (s *bitset) extend(numbers int) {
	words := (numbers + 63) / 64
	s.words = append(s.words, make([]uint64, max(0, words-len(s.words)))...)
	s.summary = append(s.summary, make([]uint64, max(0, (words+63)/64-len(s.summary)))...)
}

func (s *bitset) has(number int) bool { return s.words[number/64]&(1<<(number%64)) != 0 }

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
	for i := word / 64; i < len(s.summary); i++ {
		nonzero := s.summary[i]
		if i == word/64 {
			nonzero &= ^uint64(0) << (word % 64)
		}
		if nonzero != 0 {
			word = i*64 + bits.TrailingZeros64(nonzero)
			return word*64 + bits.TrailingZeros64(s.words[word])
		}
	}
	return -1
}

// consecutive is the first of n consecutive numbers of the set, or negative. It looks
// only at the words from one up to another.
func (s *bitset) consecutive(n, fromWord, toWord int) int {
	length := 0 // of the numbers just before a word
	for w := fromWord; w < toWord; w++ {
		word := s.words[w]
		low := bits.TrailingZeros64(^word)
		if length+low >= n {
			return w*64 - length
		}
		if low == 64 {
			length += 64
			continue
		}
		if bit := consecutiveOnes(word, n); bit >= 0 {
			return w*64 + bit
		}
		length = bits.LeadingZeros64(^word)
	}
	return -1
}

// consecutiveOnes is where the first n consecutive ones begin in a word, or negative.
func consecutiveOnes(word uint64, n int) int {
	if n > 64 {
		return -1
	}
	for have := 1; have < n && word != 0; { // a one now stands for that many
		more := min(have, n-have)
		word &= word >> more
		have += more
	}
	if word == 0 {
		return -1
	}
	return bits.TrailingZeros64(word)
}
