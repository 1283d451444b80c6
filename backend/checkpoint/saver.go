package checkpoint

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"tritonstateful/backend/config"
	"tritonstateful/internal/statestore"
	"tritonstateful/internal/status"
	"tritonstateful/statebuffer"
)

// Source is the instance whose sequences are saved.
type Source interface {
	// Locked calls a function while no batch runs. It may wait for one.
	Locked(func())
	// The others are called by that function.
	Snapshot(q *statebuffer.Sequence, to *statebuffer.Snapshot) error
	Lose(q *statebuffer.Sequence, reason statebuffer.LossReason)
	// Forget ends a sequence that is to go on elsewhere, or later.
	Forget(q *statebuffer.Sequence)
}

// Options are what a Saver is made of.
type Options struct {
	Store  statestore.Store
	Policy Policy
	Source Source
	Clock  func() time.Duration
	Log    *slog.Logger
}

// Saver saves the states of an instance's sequences.
type Saver struct {
	store   statestore.Store
	policy  Policy
	source  Source
	clock   func() time.Duration
	log     *slog.Logger
	context context.Context // of all calls of the store
	cancel  context.CancelFunc
	wake    chan struct{} // has one element if there is something to do
	stopped chan struct{} // closed when the goroutine has ended
	resumes chan struct{} // as many elements as calls of Resume are under way

	mu      sync.Mutex
	changed sync.Cond // something was saved, or failed
	// An entry that calls the store, or will, is in one of these lists, or has a job.
	urgent   entryList // ready, and somebody waits for it
	ready    entryList
	dirty    entryList         // by since
	latest   map[string]*Entry // of each key, see keys.go
	lost     []lostEntry
	number   uint64        // of the last entry
	lookAt   time.Duration // when the goroutine looks again unless it is woken
	jobs     int
	bytes    int64 // of the snapshots of jobs
	unused   []*job
	queue    []*job        // those that wait for a goroutine
	encoding int64         // bytes of the snapshots of jobs that have one
	encoders []*encoder    // that no goroutine has
	failures int           // in a row
	retryAt  time.Duration // not before that is the store called again
	paidAt   time.Duration // until then, what was saved takes at the rate of the policy
	flushing bool
	closed   bool
	counters Counters

	// answeredAt is when the store last answered for a sequence that is restored.
	answeredAt time.Duration
}

// lostEntry is an entry whose sequence is to lose its state here.
type lostEntry struct {
	*Entry
	reason statebuffer.LossReason
}

// maxResumes bounds the calls of the store for sequences that are restored.
const maxResumes = 64

// New begins to save. The caller must Close the Saver.
func New(o Options) *Saver {
	s := &Saver{
		store: o.Store, policy: o.Policy, source: o.Source, clock: o.Clock, log: o.Log,
		latest: map[string]*Entry{},
		wake:   make(chan struct{}, 1), stopped: make(chan struct{}), resumes: make(chan struct{}, maxResumes),
	}
	s.changed.L = &s.mu
	s.context, s.cancel = context.WithCancel(context.Background())
	go s.serve()
	return s
}

// NewEntry is the entry of a sequence that began here. Where nothing is ever saved (Writes), none
// is needed.
func (s *Saver) NewEntry(q *statebuffer.Sequence, key string) *Entry {
	return s.newEntry(&Entry{key: key, sequence: q})
}

// Restored is the entry of a sequence that goes on with what the store had: its epoch, and as
// many steps.
func (s *Saver) Restored(q *statebuffer.Sequence, key string, epoch, steps uint64) *Entry {
	return s.newEntry(&Entry{key: key, sequence: q, epoch: epoch, steps: steps, saved: steps})
}

func (s *Saver) newEntry(e *Entry) *Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	e.number, e.began = s.number, s.clock()
	e.written = e.began
	return e
}

// Continues notes that a sequence goes on here that was to be saved and forgotten: its client
// has come back before that was done.
func (s *Saver) Continues(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.end == pauses {
		e.end = goesOn
		s.place(e, s.clock())
	}
}

// Writes reports whether anything is ever saved.
func (s *Saver) Writes() bool { return s.policy.writes() }

// EveryStep reports whether every answer waits until its step is saved.
func (s *Saver) EveryStep() bool { return s.policy.When == config.EveryStep }

// Saved is how many steps of a sequence are saved.
func (s *Saver) Saved(e *Entry) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.saved
}

// Stepped notes that a sequence has made a step, and has made that many now. If done is not
// nil, it is called as soon as they are saved, or with the reason why they are not, by any
// goroutine.
func (s *Saver) Stepped(e *Entry, steps uint64, now time.Duration, done func(saved uint64, err error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !e.unsaved() {
		e.since = now
	}
	e.steps = steps
	s.wait(e, done)
	s.place(e, now)
}

// Ended notes that a sequence has ended with a last step. What is saved of it is deleted.
func (s *Saver) Ended(e *Entry, now time.Duration, done func(saved uint64, err error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.end = drops
	e.steps++
	s.wait(e, done)
	s.place(e, now)
}

// Paused notes that a sequence is to be saved, and then forgotten here. The lock of the instance
// is held, and no step is open: the snapshot is taken at once, because the server may give the
// batch slot of the sequence to another one.
func (s *Saver) Paused(e *Entry, steps uint64, now time.Duration, done func(saved uint64, err error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.end, e.steps, e.since = pauses, steps, now
	if !e.lost && e.alive() {
		s.release(e)
		if j := s.newJob(e); j.snapshot(s.source) == nil {
			e.taken = j
		} else { // start tries again
			s.unused = append(s.unused, j)
		}
	}
	s.wait(e, done)
	s.place(e, now)
}

func (s *Saver) wait(e *Entry, done func(saved uint64, err error)) {
	if done != nil {
		e.waiters = append(e.waiters, waiter{e.steps, done})
	}
}

// place puts an entry into the list that it belongs in.
func (s *Saver) place(e *Entry, now time.Duration) {
	to := &s.dirty
	switch {
	case e.working || e.held || e.frozen:
		return // see end, leave and resume
	case len(e.waiters) == 0 && (e.lost || !s.calls(e)):
		e.unlink()
		s.release(e)
		s.leave(e, now)
		return
	}
	if s.enter(e, now); e.held || e.lost && len(e.waiters) == 0 {
		return
	}
	switch {
	case len(e.waiters) > 0:
		to = &s.urgent
	case e.epoch == 0 || e.end != goesOn || s.due(e, now):
		to = &s.ready
	}
	if e.in != to && e.in != &s.urgent {
		e.unlink()
		to.push(e)
	}
}

// calls reports whether the store has to be called for an entry, now or later.
func (s *Saver) calls(e *Entry) bool {
	return e.epoch == 0 || e.end != goesOn || e.unsaved() && s.policy.automatic()
}

// due reports whether the policy wants the state of an entry saved.
func (s *Saver) due(e *Entry, now time.Duration) bool {
	switch s.policy.When {
	case config.EveryStep:
		return e.unsaved()
	case config.EverySteps:
		return e.steps-e.saved >= s.policy.Steps || e.unsaved() && (s.flushing || s.expires(e, now))
	case config.EveryInterval:
		return e.unsaved() && (now-e.since >= s.policy.Interval || s.flushing)
	default:
		return false
	}
}

// expires reports whether what is saved of an entry expires soon: its steps are far apart.
func (s *Saver) expires(e *Entry, now time.Duration) bool {
	return s.policy.TTL > 0 && now-e.written >= s.policy.TTL/2
}

// Kick has the goroutine of the Saver look for something to do. The execution calls it when a
// batch is over.
func (s *Saver) Kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Busy reports whether Kick would find something, now or before the goroutine looks again.
func (s *Saver) Busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.urgent.len+s.ready.len+len(s.lost) > 0 && s.jobs < maxJobs || s.nextDue() < s.lookAt
}

// nextDue is when an entry becomes ready by itself.
func (s *Saver) nextDue() (at time.Duration) {
	if e := s.dirty.first; e != nil && s.policy.When == config.EveryInterval {
		return e.since + s.policy.Interval
	}
	return math.MaxInt64
}

// Close saves what is not saved, but not for longer than flushTime, and ends. No batch may be
// running or follow. All answers that wait are released.
func (s *Saver) Close() {
	s.flush()
	s.cancel()
	s.mu.Lock()
	s.closed = true
	for s.jobs > 0 {
		s.changed.Wait()
	}
	var all []told
	err := status.Errorf(status.Unavailable, "the model was unloaded before the state was saved")
	for _, l := range []*entryList{&s.urgent, &s.ready, &s.dirty} {
		for l.first != nil {
			all = l.first.takeWaiters(all, math.MaxUint64, err)
			l.first.unlink()
		}
	}
	for _, e := range s.latest { // held ones are in no list
		s.release(e)
		all = e.takeWaiters(all, math.MaxUint64, err)
	}
	s.mu.Unlock()
	tell(all)
	s.Kick()
	<-s.stopped
}

// flush makes all entries ready that have steps to save, and waits.
func (s *Saver) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushing = true
	for e := s.dirty.first; e != nil && s.policy.automatic(); e = s.dirty.first {
		e.unlink()
		s.ready.push(e)
	}
	over := time.AfterFunc(flushTime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.flushing = false
		s.changed.Broadcast()
	})
	defer over.Stop()
	s.Kick()
	const enough = 3
	for s.flushing && s.failures < enough && s.urgent.len+s.ready.len+s.jobs > 0 { // held ones have a job before them
		s.changed.Wait()
	}
	if left := s.urgent.len + s.ready.len + s.jobs; left > 0 {
		s.log.Warn("unloaded with states that are not saved", "sequences", left)
	}
}
