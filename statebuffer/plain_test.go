package statebuffer

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"tritonstateful/internal/tensor"
)

// plainStore is what a Store is to do, written without any thought of speed:
// every question is answered by looking at everything.
type plainStore struct {
	sizing     Sizing
	limits     Limits
	slots      plainSlots
	live       map[Key]*plainSequence
	tombstones []plainTombstone // oldest first
	touches    int
	counters   Counters
	batches    []plainBatch
}

// plainBatch is when a batch began and ended.
type plainBatch struct{ began, ended time.Duration }

type plainSequence struct {
	slot    Slot
	fresh   bool
	steps   uint64
	lastUse time.Duration
	touched int      // order of use
	values  [][]byte // of each state, as the model sees it
	varying []plainVarying
}

type plainVarying struct {
	shape tensor.Shape
	value []byte
}

type plainTombstone struct {
	key  Key
	loss LossReason
	at   time.Duration
}

func newPlainStore(sizing Sizing, limits Limits) *plainStore {
	p := &plainStore{sizing: sizing, limits: limits, live: map[Key]*plainSequence{}}
	p.slots.grow(sizing.Initial)
	return p
}

func (p *plainStore) touch(k Key, now time.Duration) bool {
	q, ok := p.live[k]
	if ok {
		p.touches++
		q.lastUse, q.touched = now, p.touches
	}
	return ok
}

// begin reports whether the START got a slot.
func (p *plainStore) begin(k Key, now time.Duration) bool {
	if p.touch(k, now) {
		q := p.live[k]
		if !q.fresh {
			p.counters.Restarted++
		}
		q.fresh, q.steps = true, 0
		return true
	}
	p.dropTombstone(k)
	if p.slots.allFree() == 0 {
		p.evictOne(now)
	}
	slot, ok := p.slots.take()
	if !ok {
		p.counters.RejectedFull++
		p.addTombstone(k, Refused, now)
		return false
	}
	p.live[k] = &plainSequence{slot: slot, fresh: true}
	p.touch(k, now)
	p.counters.Started++
	return true
}

// proceed is the reason of loss of a sequence: NotLost with false if it is not known.
func (p *plainStore) proceed(k Key, now time.Duration) (LossReason, bool) {
	if p.touch(k, now) {
		return NotLost, true
	}
	p.counters.Unknown++
	for _, l := range p.tombstones {
		if l.key == k {
			return l.loss, false
		}
	}
	return NotLost, false
}

func (p *plainStore) end(k Key) {
	if q, ok := p.live[k]; ok {
		p.slots[q.slot.Chunk][q.slot.Index] = false
		delete(p.live, k)
		p.counters.Ended++
	}
}

func (p *plainStore) revoke(k Key, why LossReason, now time.Duration) {
	q := p.live[k]
	p.slots[q.slot.Chunk][q.slot.Index] = false
	delete(p.live, k)
	p.addTombstone(k, why, now)
}

func (p *plainStore) addTombstone(k Key, why LossReason, now time.Duration) {
	p.dropTombstone(k)
	p.tombstones = append(p.tombstones, plainTombstone{k, why, now})
	if extra := len(p.tombstones) - p.limits.Tombstones; extra > 0 {
		p.tombstones = p.tombstones[extra:]
	}
}

func (p *plainStore) dropTombstone(k Key) {
	p.tombstones = slices.DeleteFunc(p.tombstones, func(l plainTombstone) bool { return l.key == k })
}

// evictOne ends one sequence if it may.
func (p *plainStore) evictOne(now time.Duration) {
	oldest := p.byUse()[0]
	switch since := now - p.live[oldest].lastUse; {
	case since <= 0:
	case since > p.limits.Idle && p.limits.Idle > 0:
		p.revoke(oldest, Expired, now)
		p.counters.Expired++
	case p.limits.Full == EvictLRU:
		p.revoke(oldest, Evicted, now)
		p.counters.Evicted++
	}
}

// endBatch is what EndBatch does after a batch of these sequences.
func (p *plainStore) endBatch(batch plainBatch, keys []Key) (expired int) {
	p.batches = append(p.batches, batch)
	for _, k := range keys {
		if q, ok := p.live[k]; ok {
			q.lastUse = batch.ended
		}
	}
	for _, k := range p.byUse() {
		long := 2 * p.limits.Idle
		since := batch.ended - p.live[k].lastUse
		if long > 0 && (since > long+time.Hour || p.rest(p.live[k].lastUse) > long+10*time.Second) {
			p.revoke(k, Expired, batch.ended)
			p.counters.Expired++
			expired++
		}
	}
	return expired
}

// rest is how much of the time from a moment on was between batches.
func (p *plainStore) rest(from time.Duration) (rest time.Duration) {
	for i, b := range p.batches {
		if i > 0 && b.began > from {
			rest += b.began - max(from, p.batches[i-1].ended)
		}
	}
	return rest
}

// byUse are the live sequences, the one that was used least recently first.
func (p *plainStore) byUse() []Key {
	return slices.SortedFunc(maps.Keys(p.live), func(a, b Key) int { return cmp.Compare(p.live[a].touched, p.live[b].touched) })
}

// fail is what becomes of a lane whose run failed.
func (p *plainStore) fail(k Key, end bool, now time.Duration) {
	switch {
	case p.live[k].fresh:
		p.revoke(k, StartFailed, now)
		p.counters.StartFailures++
	case end:
		p.end(k)
	}
}

func (p *plainStore) refuse(k Key, now time.Duration) {
	p.counters.StartFailures++
	if _, live := p.live[k]; live {
		p.revoke(k, StartFailed, now)
		return
	}
	p.addTombstone(k, StartFailed, now)
}

// maintain returns what Maintain will do: +1 for a chunk more, -1 for a chunk fewer.
func (p *plainStore) maintain() int {
	free, last := p.slots.allFree(), len(p.slots)-1
	switch {
	case !p.sizing.Lazy():
		return 0
	case len(p.slots) < p.sizing.MaxChunks && free < p.sizing.AllocBelow:
		return 1
	case last > 0 && free > p.sizing.DeallocAbove && p.slots.free(last) == len(p.slots[last]):
		return -1
	}
	return 0
}
