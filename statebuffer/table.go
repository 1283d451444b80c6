package statebuffer

import (
	"fmt"
	"time"
)

// Policy is what happens to a START when every slot is taken.
type Policy uint8

const (
	// Reject refuses the new sequence.
	Reject Policy = iota
	// EvictLRU ends the sequence that was used least recently.
	EvictLRU
)

// String is the word that the parameter when_full has for it.
func (p Policy) String() string { return [...]string{"reject", "evict_lru"}[p] }

// Limits bound the life of sequences.
type Limits struct {
	// Idle is how long after its last answer a sequence keeps its state for sure; 0
	// means for ever. After that it loses it when another one needs its slot or its
	// memory, those used least recently first. See [Store.EndBatch] for those that
	// nobody needs anything of.
	Idle time.Duration
	Full Policy
	// Tombstones is how many lost sequences are remembered with their LossReason.
	Tombstones int
	// Bytes bounds what the slots and the varying states of all sequences take
	// together; 0 means no bound.
	Bytes int64
	// Field is what the configuration calls the number of sequences, for messages.
	Field string
}

// LostError says that a request names a sequence that has no state.
type LostError struct {
	// Reason is NotLost for a sequence that was never seen, or ended, or is
	// forgotten.
	Reason LossReason
	// Ago is how long since it was lost.
	Ago time.Duration
	// Idle, Slots and Bytes are the limits that cost it its state: Idle with
	// Expired; otherwise Bytes, if that is not 0, or the number of slots.
	Idle  time.Duration
	Slots int
	Bytes int64
	Field string // see Limits
}

func (e *LostError) Error() string {
	const remedy = "; begin it anew with a START request"
	ago := e.Ago.Round(time.Millisecond)
	switch e.Reason {
	case Expired:
		return fmt.Sprintf("its state expired %v ago, after idling longer than %v (max_sequence_idle_microseconds)%s", ago, e.Idle, remedy)
	case Evicted:
		return fmt.Sprintf("its state was evicted %v ago to make room for another sequence: %s%s", ago, e.limit(), remedy)
	case Refused:
		return fmt.Sprintf("its START was refused %v ago because there was no free slot: %s%s", ago, e.limit(), remedy)
	case StartFailed:
		if e.Bytes > 0 {
			return fmt.Sprintf("its START failed %v ago, so it has no state: %s%s", ago, e.limit(), remedy)
		}
		return fmt.Sprintf("its START failed %v ago, so it has no state%s", ago, remedy)
	case Displaced:
		return fmt.Sprintf("its place was given to another sequence %v ago, because the server had dropped it (idle or cancelled)%s", ago, remedy)
	case Replaced:
		return fmt.Sprintf("its state made room %v ago, because its ID began anew before it had ended: %s; wait for the answer to END before using an ID again", ago, e.limit())
	case Damaged:
		return fmt.Sprintf("its state could not be stored %v ago because writing to memory failed%s", ago, remedy)
	default:
		return "no such sequence is known" + remedy
	}
}

// limit is what there was too little of, with its parameter.
func (e *LostError) limit() string {
	if e.Bytes > 0 {
		return fmt.Sprintf("states may take at most %d bytes (max_state_memory_bytes)", e.Bytes)
	}
	return fmt.Sprintf("there are at most %d slots (%s)", e.Slots, e.Field)
}

// FullError says that a START found no free slot.
type FullError struct {
	Live, Total int
	// Bytes is the limit that keeps the store from allocating more slots, or 0.
	Bytes int64
	Field string // see Limits
}

func (e *FullError) Error() string {
	if e.Bytes > 0 {
		return fmt.Sprintf("too many simultaneous sequences: %d slots are taken, and more would exceed %d bytes (max_state_memory_bytes); try again later, end sequences that are done, or raise the limit", e.Live, e.Bytes)
	}
	return fmt.Sprintf("too many simultaneous sequences: %d of %d slots are taken; try again later, end sequences that are done, or raise %s", e.Live, e.Total, e.Field)
}

// Counters count what happened since the store was made. Unknown are requests
// without START of a sequence that has no state, for whatever reason.
type Counters struct {
	Started, Restarted, Ended            uint64
	Expired, Evicted, Displaced          uint64
	RejectedFull, StartFailures, Unknown uint64
	Saturated                            uint64
}

// table is the life of sequences: who is live, in which slot, and what became
// of the others. Each operation is O(1), whatever the number of sequences.
type table struct {
	index
	slots  slotSet
	live   sequenceList // by last use, without older ones
	older  sequenceList // those whose ID has begun anew, by when it did, or by last use since; in use, last
	lost   sequenceList // by time of loss, without older ones
	past   sequenceList // older ones that are lost, by when they were or became older
	limits Limits
	total  int // slots with all chunks allocated, for messages
	// bound is the limit of memory if it keeps the table from getting more slots,
	// otherwise 0; for messages.
	bound      func() int64
	generation uint64
	counters   Counters
	// began is when the last batch began, ended when the last one ended, and rest the
	// time between batches so far.
	began, ended, rest time.Duration
	// release overwrites the slot of a sequence that is about to lose it, and
	// gives back what it holds besides.
	release func(*Sequence)
}

// begin gives the sequence of a START its slot. With a token, what is known under the key
// is set aside.
func (t *table) begin(k Key, token uint64, now time.Duration) (*Sequence, error) {
	var before *Sequence
	if token != 0 {
		before = t.setAside(k, token, now)
	}
	q := t.find(k)
	if q != nil && q.loss == NotLost {
		if !q.fresh { // else the run of this START was undone, and it comes again
			t.counters.Restarted++
		}
		t.touch(q, now)
		t.renew(q)
		return q, nil
	}
	restarts := t.supersede(k, now) || before != nil
	q = t.recall(k)
	slot, ok := t.slots.take()
	if !ok {
		bytes := t.bound()
		switch {
		case before != nil && t.older.first.lastUse >= now:
			t.lose(before, Replaced, bytes, now) // in use: its request came before this one, and has run
		case !t.makeRoom(bytes, now):
			t.counters.RejectedFull++
			t.remember(q, Refused, bytes, now)
			return nil, &FullError{Live: t.alive(), Total: t.total, Bytes: bytes, Field: t.limits.Field}
		}
		slot, _ = t.slots.take()
	}
	q.loss, q.slot, q.lastUse, q.lastRequest, q.rest = NotLost, slot, now, now, t.rest
	t.renew(q)
	t.live.push(q)
	if restarts {
		t.counters.Restarted++
	} else {
		t.counters.Started++
	}
	return q, nil
}

// supersede makes way for a sequence that begins under a new key, and reports
// whether its ID has a live one. That becomes an older one: whether it is over, or
// has requests on their way, only the server knows. Another ID's with the same
// token is over.
func (t *table) supersede(k Key, now time.Duration) (restarts bool) {
	if q := t.latest(k); q != nil && q.loss == NotLost {
		t.age(q, now)
		restarts = true
	}
	if q := t.byToken[k.Token]; q != nil {
		if q.loss == NotLost {
			t.lose(q, Displaced, 0, now)
		}
		delete(t.byToken, k.Token)
	}
	return restarts
}

// setAside gives what is known under a key without token one. It returns that, if it is
// live.
func (t *table) setAside(k Key, token uint64, now time.Duration) (alive *Sequence) {
	q := t.find(k)
	if q == nil {
		return nil
	}
	t.drop(q)
	q.key.Token = token
	t.byToken[token] = q
	if q.loss == NotLost {
		t.age(q, now)
		return q
	}
	t.listOf(q).remove(q)
	q.older = true
	t.keep(q)
	return nil
}

// age makes a live sequence one whose ID has begun anew. Those in use stay behind it in
// the list, which are no more than a batch has requests.
func (t *table) age(q *Sequence, now time.Duration) {
	t.listOf(q).remove(q)
	q.older = true
	before := t.older.last
	for q.lastUse < now && before != nil && before.lastUse >= now {
		before = before.prev
	}
	t.older.insert(q, before)
	t.dropLatest(q)
}

// alive is how many sequences have a state.
func (t *table) alive() int { return t.live.len + t.older.len }

// listOf is the list that a sequence is in.
func (t *table) listOf(q *Sequence) *sequenceList {
	switch {
	case q.loss != NotLost && q.older:
		return &t.past
	case q.loss != NotLost:
		return &t.lost
	case q.older:
		return &t.older
	default:
		return &t.live
	}
}

// renew makes the next step of q its first.
func (t *table) renew(q *Sequence) {
	t.generation++
	q.generation, q.fresh, q.steps, q.totals = t.generation, true, 0, q.totals[:0]
}

// proceed finds the sequence of a request without START.
func (t *table) proceed(k Key, now time.Duration) (*Sequence, error) {
	q := t.find(k)
	if q == nil {
		t.counters.Unknown++
		return nil, &LostError{}
	}
	if q.loss != NotLost {
		t.counters.Unknown++
		return nil, &LostError{Reason: q.loss, Ago: now - q.lastUse, Idle: t.limits.Idle, Slots: t.total, Bytes: q.bytes, Field: t.limits.Field}
	}
	t.touch(q, now)
	return q, nil
}

// finish forgets a sequence that ended.
func (t *table) finish(q *Sequence) {
	t.leave(q)
	t.drop(q)
	t.counters.Ended++
}

// forget drops whatever is known under a key.
func (t *table) forget(k Key) {
	q := t.find(k)
	if q == nil || q.key != k {
		return
	}
	if q.loss == NotLost {
		t.leave(q)
	} else {
		t.listOf(q).remove(q)
	}
	t.drop(q)
}

// leave takes what a live sequence has.
func (t *table) leave(q *Sequence) {
	t.listOf(q).remove(q)
	t.release(q)
	t.slots.put(q.slot)
}

// lose takes the slot of a live sequence and remembers why; bytes is the limit of
// memory if that was the reason, otherwise 0.
func (t *table) lose(q *Sequence, why LossReason, bytes int64, now time.Duration) {
	t.leave(q)
	switch why {
	case Expired:
		t.counters.Expired++
	case Evicted:
		t.counters.Evicted++
	case Displaced:
		t.counters.Displaced++
	case StartFailed:
		t.counters.StartFailures++
	}
	t.remember(q, why, bytes, now)
}

// remember keeps a sequence that has no slot any more, or never had one, for
// messages.
func (t *table) remember(q *Sequence, why LossReason, bytes int64, now time.Duration) {
	q.loss, q.slot, q.bytes, q.lastUse = why, NoSlot, bytes, now
	t.keep(q)
}

// keep puts a lost sequence last in its list, and forgets the first ones of it that are
// too many: older ones, of which an ID may have several, do not displace others.
func (t *table) keep(q *Sequence) {
	list := t.listOf(q)
	list.push(q)
	for list.len > t.limits.Tombstones {
		oldest := list.first
		list.remove(oldest)
		t.drop(oldest)
	}
}

// refuse takes whatever a sequence has, because its START cannot be served.
func (t *table) refuse(k Key, now time.Duration) {
	q := t.find(k)
	if q != nil && q.loss == NotLost {
		t.lose(q, StartFailed, 0, now)
		return
	}
	t.supersede(k, now)
	t.counters.StartFailures++
	t.remember(t.recall(k), StartFailed, 0, now)
}

// recall is what is remembered of a sequence that is not live, or a new one. It
// is in no list then: while others get lost, it cannot be forgotten for them.
func (t *table) recall(k Key) *Sequence {
	q := t.find(k)
	if q == nil {
		q = &Sequence{}
	} else {
		t.listOf(q).remove(q)
		t.drop(q)
		q.older = false
	}
	t.add(q, k)
	return q
}

// makeRoom ends a sequence whose ID has begun anew, or else the one that was used least
// recently, if the limits allow it. One in use at this very moment, which the caller has
// touched, stays. bytes is the limit of memory if it is memory that there is no room in,
// otherwise 0.
func (t *table) makeRoom(bytes int64, now time.Duration) bool {
	if q := t.older.first; q != nil && q.lastUse < now {
		t.lose(q, Replaced, bytes, now)
		return true
	}
	q := t.live.first
	switch {
	case q == nil || q.lastUse >= now:
		return false
	case t.idles(q, now):
		t.lose(q, Expired, 0, now)
	case t.limits.Full == EvictLRU:
		t.lose(q, Evicted, bytes, now)
	default:
		return false
	}
	return true
}
