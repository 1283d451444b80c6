package statebuffer

import "time"

// A tombstone is what remains of a sequence that has lost its state, or never got one:
// the Sequence itself, with the reason, so that later requests of it get an error that
// says what happened. The oldest tombstones are forgotten, see Limits.

// revoke takes the slot of a live sequence and leaves a tombstone that says why; bytes is
// the limit of memory if that was the reason, otherwise 0.
func (t *table) revoke(q *Sequence, why LossReason, bytes int64, now time.Duration) {
	t.freeSlot(q)
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
	t.addTombstone(q, why, bytes, now)
}

// addTombstone makes a sequence that has no slot any more, or never had one, its own
// tombstone.
func (t *table) addTombstone(q *Sequence, why LossReason, bytes int64, now time.Duration) {
	q.loss, q.slot, q.lastUse = why, NoSlot, now
	if bytes != q.bytes {
		q.own().bytes = bytes
	}
	t.pushTombstone(q)
}

// pushTombstone puts a lost sequence last in its list, and forgets the first ones of it
// that are too many: older ones, of which an ID may have several, have a list of their
// own, and so do not displace others.
func (t *table) pushTombstone(q *Sequence) {
	list := t.listOf(q)
	list.push(q)
	for list.len > t.limits.Tombstones {
		oldest := list.first
		list.remove(oldest)
		t.drop(oldest)
	}
}

// Refuse is a START that cannot be served, for a reason of the caller's: the sequence
// loses its state, if it has one.
func (t *table) Refuse(k Key, now time.Duration) {
	q := t.find(k)
	if q != nil && q.live() {
		t.revoke(q, StartFailed, 0, now)
		return
	}
	t.supersede(k, now)
	t.counters.StartFailures++
	t.addTombstone(t.takeTombstone(k), StartFailed, 0, now)
}

// takeTombstone is the tombstone of a sequence that is not live, or a new sequence. It
// is in no list then: while others are lost, it cannot be forgotten for them.
func (t *table) takeTombstone(k Key) *Sequence {
	q := t.find(k)
	if q == nil {
		q = &Sequence{extras: noExtras}
	} else {
		t.listOf(q).remove(q)
		t.drop(q)
		q.older = false
	}
	t.add(q, k)
	return q
}

// evictOne ends a sequence whose ID has begun again, or else the one that was used least
// recently, if the limits allow it, and reports whether it has. One in use at this very
// moment, which the caller has touched, stays. bytes is the limit of memory if memory is
// short, otherwise 0.
func (t *table) evictOne(bytes int64, now time.Duration) bool {
	if q := t.older.first; q != nil && q.lastUse < now {
		t.revoke(q, Replaced, bytes, now)
		return true
	}
	q := t.live.first
	switch {
	case q == nil || q.lastUse >= now:
		return false
	case t.overIdleLimit(q, now):
		t.revoke(q, Expired, 0, now)
	case t.limits.Full == EvictLRU:
		t.revoke(q, Evicted, bytes, now)
	default:
		return false
	}
	return true
}
