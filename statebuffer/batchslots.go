package statebuffer

import "time"

// batchSlots are the places in the batch that Triton's direct scheduler gives to
// sequences, each with the one that has it or nil. Other schedulers have none.
type batchSlots []*Sequence

// leave takes from a sequence the place that it has.
func (b batchSlots) leave(q *Sequence) {
	if q.batchSlot > 0 {
		b[q.batchSlot-1], q.batchSlot = nil, 0
	}
}

// take gives a place, which is free or its own, to a sequence.
func (b batchSlots) take(at int, q *Sequence) {
	if at < len(b) {
		b.leave(q)
		b[at], q.batchSlot = q, at+1
	}
}

// Displace is for a START that comes at a place in the batch of the direct
// scheduler: another sequence that has it is over for the server, which tells
// nobody when it frees a place, and loses its state. It is called for all STARTs
// of a batch before any sequence is given to a run.
func (s *Store) Displace(at int, by Key, now time.Duration) {
	if at >= len(s.holders) {
		return
	}
	if q := s.holders[at]; q != nil && q.key != by {
		s.lose(q, Displaced, 0, now)
	}
}

// Settle notes that a sequence which has begun has a place in the batch.
func (s *Store) Settle(q *Sequence, at int) { s.holders.take(at, q) }
