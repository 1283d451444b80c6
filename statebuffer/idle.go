package statebuffer

import "time"

// A sequence that idles keeps its state until its slot or its memory is needed. A
// request of it may be on its way: the server counts from the arrival of requests and
// lets them through, however long they wait in its queue, while the store sees them
// when they run. Where no slot or memory is needed, sequences whose clients are gone
// still end, by two clocks that a queue does not deceive: the time in which the instance
// waited for requests, when none was in the queue, and for instances that hardly ever
// wait a very long time of any kind.
const (
	// restMargin is beyond twice the limit of idling, in time without a batch: a client
	// may idle for the limit, and a scheduler may hold requests back for others. A server that
	// knows nothing of sequences has no limits of its own, and [Limits].Rest is in its place.
	restMargin = 10 * time.Second
	// busyMargin is beyond twice the limit, in any time.
	busyMargin = time.Hour
)

// BeginBatch notes that the instance has requests again.
func (t *table) BeginBatch(now time.Duration) {
	t.rest += max(0, now-t.ended)
	t.began = now
}

// EndBatch notes that all requests have their answers, from which on the sequences
// of the batch idle, and ends those whose clients must be gone. It returns how many.
func (t *table) EndBatch(now time.Duration) (expired int) {
	now = max(now, t.began)
	t.ended = now
	for _, list := range []*sequenceList{&t.live, &t.older} {
		for q := list.last; q != nil && q.lastUse >= t.began; q = q.prev {
			q.lastUse = now
		}
		for q := list.first; q != nil && t.abandoned(q, now); q = list.first {
			t.revoke(q, Expired, 0, now)
			expired++
		}
	}
	return expired
}

// touch notes that a sequence is in use.
func (t *table) touch(q *Sequence, now time.Duration) {
	if now != q.lastRequest { // it may be touched several times a batch
		q.idleTime, q.lastRequest = now-q.lastRequest, now
	}
	q.lastUse, q.rest = now, t.rest
	list := t.listOf(q)
	list.remove(q)
	list.push(q)
}

// overIdleLimit reports whether a sequence loses its slot if another one needs it.
func (t *table) overIdleLimit(q *Sequence, now time.Duration) bool {
	return t.limits.Idle > 0 && now-q.lastUse > t.limits.Idle
}

// abandoned reports whether the client of a sequence cannot want it any more.
func (t *table) abandoned(q *Sequence, now time.Duration) bool {
	idle, twice := t.limits.Idle, 2*t.limits.Idle
	rest := twice + restMargin
	if t.limits.Rest > 0 {
		rest = idle + t.limits.Rest
	}
	return idle > 0 && (t.rest-q.rest > rest || now-q.lastUse > twice+busyMargin)
}
