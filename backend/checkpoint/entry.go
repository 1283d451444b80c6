package checkpoint

import (
	"math"
	"sync/atomic"
	"time"

	"tritonstateful/statebuffer"
)

// Entry is what a Saver knows of one sequence, from its START or its restoration on.
type Entry struct {
	key      string
	sequence *statebuffer.Sequence

	answers struct { // see Hold
		held  atomic.Int32
		until atomic.Int64
	}

	// The rest is guarded by Saver.mu.

	// number is later than those of the entries that were made before.
	number uint64
	// began is when its first step was made, or when it could call the store after an earlier
	// entry of its key.
	began time.Duration
	epoch uint64 // 0: the store does not know yet that it began
	steps uint64 // committed
	saved uint64 // the steps that the saved state has
	// written is when the store last wrote its key, which expires some time after.
	written time.Duration
	since   time.Duration // of the first step that is not saved
	end     ending
	// working: it has a job. lost: it has none any more, see Saver.lost.
	working, lost bool
	waiters       []waiter
	taken         *job // has the snapshot of one that pauses, before the job begins

	in         *entryList
	prev, next *Entry

	// See keys.go.

	entered    bool   // it is among those of its key that call the store
	held       bool   // it waits for an earlier one
	superseded bool   // a later one has the key
	frozen     bool   // it is not saved for now, see goesOn
	again      bool   // the ID has begun again
	after      *Entry // waits for this one
}

// ending is how a sequence ended.
type ending uint8

const (
	goesOn ending = iota
	drops         // END: what is saved is deleted
	pauses        // END, and what is saved stays
)

// waiter is an answer that waits until a number of steps are saved.
type waiter struct {
	steps uint64
	done  func(saved uint64, err error)
}

// Hold notes that an answer to the sequence waits until a state is saved.
func (e *Entry) Hold() { e.answers.held.Add(1) }

// Released notes that such an answer was sent.
func (e *Entry) Released(now time.Duration) {
	e.answers.until.Store(int64(now))
	e.answers.held.Add(-1)
}

// HeldUntil is when the last answer that waited was sent; if one waits now, it is in the
// future. Any goroutine may call it.
func (e *Entry) HeldUntil() time.Duration {
	if e.answers.held.Load() > 0 {
		return math.MaxInt64
	}
	return time.Duration(e.answers.until.Load())
}

// Key is the key of the sequence in the store.
func (e *Entry) Key() string { return e.key }

// alive reports whether the sequence has its state still. It is called under the lock of the
// instance.
func (e *Entry) alive() bool { return e.sequence != nil && e.sequence.Attached == any(e) }

// unsaved reports whether there are steps to save.
func (e *Entry) unsaved() bool { return e.steps > e.saved && e.end != drops }

// told is a waiter with what it is to be told.
type told struct {
	waiter
	saved uint64
	err   error
}

// takeWaiters removes the waiters for that many steps or fewer, and adds them to those that are
// told.
func (e *Entry) takeWaiters(all []told, steps uint64, err error) []told {
	n := 0
	for ; n < len(e.waiters) && e.waiters[n].steps <= steps; n++ {
		all = append(all, told{e.waiters[n], e.saved, err})
	}
	if e.waiters = e.waiters[n:]; len(e.waiters) == 0 {
		e.waiters = nil
	}
	return all
}

// refuse takes all waiters.
func (e *Entry) refuse(all []told) []told {
	return e.takeWaiters(all, math.MaxUint64, e.refusal())
}

// tell calls the waiters. No lock may be held.
func tell(all []told) {
	for _, w := range all {
		w.done(w.saved, w.err)
	}
}

// entryList is a list of entries; an entry is in one at most.
type entryList struct {
	first, last *Entry
	len         int
}

func (l *entryList) push(e *Entry) {
	e.in, e.prev, e.next = l, l.last, nil
	if l.last != nil {
		l.last.next = e
	} else {
		l.first = e
	}
	l.last = e
	l.len++
}

// unlink takes an entry out of the list that it is in, if any.
func (e *Entry) unlink() {
	l := e.in
	if l == nil {
		return
	}
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		l.first = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		l.last = e.prev
	}
	e.in, e.prev, e.next = nil, nil, nil
	l.len--
}
