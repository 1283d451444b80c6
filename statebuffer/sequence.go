package statebuffer

import (
	"strings"
	"time"
)

// Key identifies a sequence: a number, or a string where numbers are not used.
type Key struct {
	Number uint64
	Text   string
	// Token distinguishes sequences of one number or string: no two that can have
	// requests at the same time share one. It is 0 where nothing does.
	Token uint64
}

// LossReason is why a sequence no longer has a state.
type LossReason uint8

// What can have happened to a sequence.
const (
	NotLost     LossReason = iota
	Expired                // it idled longer than the limit
	Evicted                // it made room for another one
	Refused                // its START found no free slot
	StartFailed            // the run of its START failed
	Damaged                // its new state could not be stored
	Displaced              // the server gave its batch slot to another one
	Replaced               // its ID began again before it ended, and its slot was needed
	TakenOver              // another server goes on with it
	Unsaved                // its state could not be saved, and so is not to be used
)

// Sequence is one client's stream of requests. It is valid until the store
// forgets it; between a Begin or Continue and the Commit or Abort that follows
// it stays.
//
// There may be very many, so it is as small as can be: a test says how small.
type Sequence struct {
	*extras // never nil, and noExtras where it has none
	number  uint64
	loss    LossReason
	// fresh: the next step reads the initial value, not the slot.
	fresh bool
	// older: its ID has begun again, and it may still have requests on their way.
	older bool
	// slab and cellIndex are where inPlaceValues has the values.
	cellIndex int32
	slab      *slab
	slot      Slot
	// generation differs for each owner that a slot has had; 0 of one without a state.
	generation uint64
	steps      uint64
	// lastUse is the end of the last batch that the sequence was in, or the beginning
	// of the present one; when it is lost, the time of that.
	lastUse     time.Duration
	rest        time.Duration // of the table, then
	lastRequest time.Duration // beginning of the last batch that the sequence was in
	idleTime    time.Duration // see IdleTime
	// inRun is the number of the last run that took this sequence.
	inRun uint64

	// Attached is the caller's. A START makes it nil, and so does the loss of the state.
	Attached any

	prev, next *Sequence // neighbours in the list that it is in
}

// extras are what the sequences of few models have.
type extras struct {
	text   string // see Key
	token  uint64
	totals []uint64 // see Add
	values []value  // of the varying states, from the first step on
	bytes  int64    // of a tombstone: the limit of memory if that is why, otherwise 0
}

// noExtras is shared by all sequences without extras, and never written.
var noExtras = &extras{}

// own returns extras that can be written.
func (q *Sequence) own() *extras {
	if q.extras == noExtras {
		q.extras = &extras{}
	}
	return q.extras
}

func (q *Sequence) key() Key { return Key{Number: q.number, Text: q.text, Token: q.token} }

func (q *Sequence) cell() int { return int(q.cellIndex) }

// live reports whether the sequence has a state.
func (q *Sequence) live() bool { return q.loss == NotLost }

// IsOlder reports whether the ID of the sequence has begun again (Store.BeginSettingAside).
func (q *Sequence) IsOlder() bool { return q.older }

// Steps is how many steps have been committed since the last START.
func (q *Sequence) Steps() uint64 { return q.steps }

// AddSteps counts steps that did not run.
func (q *Sequence) AddSteps(n uint64) { q.steps += n }

// Total is the sum of what Add was called with for a counter since the last START.
func (q *Sequence) Total(counter int) uint64 {
	if q.fresh || counter >= len(q.totals) {
		return 0
	}
	return q.totals[counter]
}

// Totals are the sums of all counters that Add was called with, in their order. They are
// borrowed until the next step.
func (q *Sequence) Totals() []uint64 {
	if q.fresh {
		return nil
	}
	return q.totals
}

// Generation is a number of the present life of the sequence, from a START or Restore to the
// loss of its state. No other life of a sequence of the same Store has it. It is 0 if there is
// no state. So who keeps both can find out later whether the life goes on. That is for the
// goroutine of the Store.
func (q *Sequence) Generation() uint64 { return q.generation }

// Add adds to a counter, after a step was committed.
func (q *Sequence) Add(counter int, n uint64) {
	own := q.own()
	for len(own.totals) <= counter {
		own.totals = append(own.totals, 0)
	}
	own.totals[counter] += n
}

// IdleTime is the time from the batch of the sequence's last request to that of the present
// one.
func (q *Sequence) IdleTime() time.Duration { return q.idleTime }

// MarkRun marks the sequence with the number of the run that takes it, and reports
// whether it had that number already.
func (q *Sequence) MarkRun(run uint64) (again bool) {
	again = q.inRun == run
	q.inRun = run
	return again
}

// LastRequest is when the last batch began that had a request of the sequence.
func (q *Sequence) LastRequest() time.Duration { return q.lastRequest }

// InRun reports whether the sequence has the number of a run.
func (q *Sequence) InRun(run uint64) bool { return q.inRun == run }

// sequenceList is a list in order of last use, oldest first.
type sequenceList struct {
	first, last *Sequence
	len         int
}

func (l *sequenceList) push(q *Sequence) { l.insert(q, l.last) }

// insert puts q after another one of the list, or first if that is nil.
func (l *sequenceList) insert(q, before *Sequence) {
	q.prev, q.next = before, l.first
	if before != nil {
		q.next, before.next = before.next, q
	} else {
		l.first = q
	}
	if q.next != nil {
		q.next.prev = q
	} else {
		l.last = q
	}
	l.len++
}

func (l *sequenceList) remove(q *Sequence) {
	if q.prev != nil {
		q.prev.next = q.next
	} else {
		l.first = q.next
	}
	if q.next != nil {
		q.next.prev = q.prev
	} else {
		l.last = q.prev
	}
	q.prev, q.next = nil, nil
	l.len--
}

// index finds sequences by key. Numbers have a map of their own, because hashing
// a number is cheaper than hashing a Key.
type index struct {
	byNumber map[uint64]*Sequence // the latest of each number
	byText   map[string]*Sequence // the latest of each text
	byToken  map[uint64]*Sequence // those that have one
}

func newIndex() index {
	return index{byNumber: map[uint64]*Sequence{}, byText: map[string]*Sequence{}, byToken: map[uint64]*Sequence{}}
}

// find returns the sequence of a key. Where a token leads to none, it is what became
// of the latest one of the ID, if that has lost its state.
func (x *index) find(k Key) *Sequence {
	if k.Token == 0 {
		return x.latest(k)
	}
	if q := x.byToken[k.Token]; q != nil && q.key() == k {
		return q
	}
	if q := x.latest(k); q != nil && !q.live() {
		return q
	}
	return nil
}

func (x *index) latest(k Key) *Sequence {
	if k.Text != "" {
		return x.byText[k.Text]
	}
	return x.byNumber[k.Number]
}

// add keeps a copy of the key's text, which may be borrowed.
func (x *index) add(q *Sequence, k Key) {
	if q.number = k.Number; k.Text != "" || k.Token != 0 || q.extras != noExtras {
		own := q.own()
		own.text, own.token = strings.Clone(k.Text), k.Token
	}
	if k.Token != 0 {
		x.byToken[k.Token] = q
	}
	if k.Text != "" {
		x.byText[q.text] = q
		return
	}
	x.byNumber[k.Number] = q
}

func (x *index) drop(q *Sequence) {
	if q.token != 0 && x.byToken[q.token] == q {
		delete(x.byToken, q.token)
	}
	x.dropLatest(q)
}

// dropLatest leaves q to be found by its token alone.
func (x *index) dropLatest(q *Sequence) {
	switch {
	case x.latest(q.key()) != q:
	case q.text != "":
		delete(x.byText, q.text)
	default:
		delete(x.byNumber, q.number)
	}
}
