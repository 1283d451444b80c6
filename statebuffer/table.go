package statebuffer

import "time"

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
	// memory, those used least recently first. See [Store.EndBatch] for those whose
	// slot and memory no other needs.
	Idle time.Duration
	// Rest is how much longer than Idle a sequence must have idled, in time between batches,
	// to lose its state although no other one needs its slot. 0 is the default, which suits a
	// server that lets requests through by limits of its own; see [Store.EndBatch].
	Rest time.Duration
	Full Policy
	// EndsAgain: an END that fails leaves the state as it was, because it can come again.
	// Otherwise its sequence ends.
	EndsAgain bool
	// Tombstones is how many lost sequences are remembered with their LossReason, and as
	// many again of those whose ID had begun again.
	Tombstones int
	// Bytes bounds what the slots and the varying states of all sequences take
	// together; 0 means no bound.
	Bytes int64
	// Field is what the configuration calls the number of sequences, IdleField what it calls
	// Idle, and Remedy what a client is to do about a lost sequence; for messages.
	Field, IdleField, Remedy string
}

// Counters count what happened since the store was made. Unknown are requests
// without START of a sequence that has no state, for whatever reason.
type Counters struct {
	Started, Restarted, Ended            uint64
	Expired, Evicted, Displaced          uint64
	RejectedFull, StartFailures, Unknown uint64
	Saturated                            uint64
}

// table is the life of sequences: which are live, in which slot, and what became of the
// others. Its exported methods are those of Store. Each operation is O(1), whatever the
// number of sequences.
type table struct {
	index
	slots           slotSet
	live            sequenceList // by last use, without older ones
	older           sequenceList // those whose ID has begun again, by when it did, or by last use since; in use, last
	tombstones      sequenceList // by time of loss, without older ones
	olderTombstones sequenceList // older ones that are lost, by when they were or became older
	limits          Limits
	total           int // slots with all chunks allocated, for messages
	// bound is the limit of memory if it keeps the table from getting more slots,
	// otherwise 0; for messages.
	bound      func() int64
	generation uint64
	counters   Counters
	// began is when the last batch began, ended when the last one ended, and rest the
	// time between batches so far.
	began, ended, rest time.Duration
	// release overwrites the values of a sequence that is about to lose its slot, and
	// gives back what it holds besides.
	release func(*Sequence)
}

// begin gives the sequence of a START its slot. With a token, what is known under the key
// is set aside.
func (t *table) begin(k Key, token uint64, now time.Duration) (*Sequence, error) {
	var before *Sequence
	if token != 0 {
		before = t.SetAside(k, token, now)
	}
	q := t.find(k)
	if q != nil && q.live() {
		if !q.fresh { // else the run of this START was undone, and it comes again
			t.counters.Restarted++
		}
		t.touch(q, now)
		t.renew(q)
		return q, nil
	}
	restarts := t.supersede(k, now) || before != nil
	q = t.takeTombstone(k)
	slot, ok := t.slots.take()
	if !ok {
		bytes := t.bound()
		switch {
		case before != nil && t.older.first.lastUse >= now:
			t.revoke(before, Replaced, bytes, now) // in use: its request came before this one, and has run
		case !t.evictOne(bytes, now):
			t.counters.RejectedFull++
			t.addTombstone(q, Refused, bytes, now)
			return nil, &FullError{Live: t.liveCount(), Total: t.total, Bytes: bytes, Field: t.limits.Field}
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
	if q := t.latest(k); q != nil && q.live() {
		t.makeOlder(q, now)
		restarts = true
	}
	if q := t.byToken[k.Token]; q != nil {
		if q.live() {
			t.revoke(q, Displaced, 0, now)
		}
		delete(t.byToken, k.Token)
	}
	return restarts
}

// SetAside gives what is known of a sequence without a token that token, so that the key
// is free for one that begins. A live one stays, for requests of it that are on their
// way, and is returned.
func (t *table) SetAside(k Key, token uint64, now time.Duration) (alive *Sequence) {
	q := t.find(k)
	if q == nil {
		return nil
	}
	t.drop(q)
	q.own().token = token
	t.byToken[token] = q
	if q.live() {
		t.makeOlder(q, now)
		return q
	}
	t.listOf(q).remove(q)
	q.older = true
	t.pushTombstone(q)
	return nil
}

// makeOlder makes a live sequence one whose ID has begun again. Those in use stay after
// it in the list; they are no more than a batch has requests.
func (t *table) makeOlder(q *Sequence, now time.Duration) {
	t.listOf(q).remove(q)
	q.older = true
	before := t.older.last
	for q.lastUse < now && before != nil && before.lastUse >= now {
		before = before.prev
	}
	t.older.insert(q, before)
	t.dropLatest(q)
}

// liveCount is how many sequences have a state.
func (t *table) liveCount() int { return t.live.len + t.older.len }

// listOf is the list that a sequence is in.
func (t *table) listOf(q *Sequence) *sequenceList {
	switch {
	case !q.live() && q.older:
		return &t.olderTombstones
	case !q.live():
		return &t.tombstones
	case q.older:
		return &t.older
	default:
		return &t.live
	}
}

// renew makes the next step of q its first.
func (t *table) renew(q *Sequence) {
	t.generation++
	q.generation, q.fresh, q.steps, q.Attached = t.generation, true, 0, nil
	if q.extras != noExtras {
		q.totals = q.totals[:0]
	}
}

// Touch finds a live sequence that a request names and notes that it is in use,
// so that it is not expired or evicted for others. It is nil when the sequence
// has no state.
func (t *table) Touch(k Key, now time.Duration) *Sequence {
	q := t.Live(k)
	if q != nil {
		t.touch(q, now)
	}
	return q
}

// Answered notes that the START of a sequence was answered only after its batch, so that
// it idles from then on. It has a request now, but is not in use.
func (t *table) Answered(k Key, now time.Duration) {
	if q := t.Touch(k, now); q != nil {
		q.lastUse = t.ended
	}
}

// Live is Touch without noting anything.
func (t *table) Live(k Key) *Sequence {
	if q := t.find(k); q != nil && q.live() {
		return q
	}
	return nil
}

// Lost is why a sequence has no state any more, as far as that is remembered. It is NotLost for
// one that has a state, ended, or was never seen.
func (t *table) Lost(k Key) LossReason {
	if q := t.find(k); q != nil {
		return q.loss
	}
	return NotLost
}

// LostAfter is Lost with the number of steps that the sequence had made.
func (t *table) LostAfter(k Key) (reason LossReason, steps uint64) {
	if q := t.find(k); q != nil {
		reason, steps = q.loss, q.steps
	}
	return reason, steps
}

// Knows reports whether there is anything under a key: a live sequence, or a tombstone.
func (t *table) Knows(k Key) bool { return t.find(k) != nil }

// Continue finds the sequence of a request without START. The error is a
// *LostError.
func (t *table) Continue(k Key, now time.Duration) (*Sequence, error) {
	q := t.find(k)
	if q == nil {
		t.counters.Unknown++
		return nil, &LostError{Remedy: t.limits.Remedy}
	}
	if !q.live() {
		t.counters.Unknown++
		return nil, &LostError{Reason: q.loss, Ago: now - q.lastUse, Idle: t.limits.Idle, Slots: t.total, Bytes: q.bytes, Field: t.limits.Field, IdleField: t.limits.IdleField, Remedy: t.limits.Remedy}
	}
	t.touch(q, now)
	return q, nil
}

// End forgets a live sequence; of others it changes nothing.
func (t *table) End(k Key) {
	if q := t.Live(k); q != nil {
		t.Finish(q)
	}
}

// Finish forgets a live sequence that has ended.
func (t *table) Finish(q *Sequence) {
	t.freeSlot(q)
	t.drop(q)
	t.counters.Ended++
}

// Forget drops all that is known under a key.
func (t *table) Forget(k Key) {
	q := t.find(k)
	if q == nil || q.key() != k {
		return
	}
	if q.live() {
		t.freeSlot(q)
	} else {
		t.listOf(q).remove(q)
	}
	t.drop(q)
}

// freeSlot takes what a live sequence has.
func (t *table) freeSlot(q *Sequence) {
	t.listOf(q).remove(q)
	t.release(q)
	t.slots.put(q.slot)
	q.generation, q.Attached = 0, nil
}
