package backend

import (
	"sync"
	"time"
)

// How long the server must have had nothing to run before it has nothing queued either: a
// number of ticks, each of which needs a processor, so that time in which the process was
// stopped does not count. The queue delay of a batch is added. See docs/RATIONALE.md for the
// measurements.
const (
	quietTicks = 6
	quietTick  = 40 * time.Millisecond
)

// quiet releases held requests while no batch runs. Only begin and end are called by the
// goroutine of the batches.
type quiet struct {
	tick time.Duration
	// after is time.AfterFunc; tests have their own.
	after func(time.Duration, func())

	mu       sync.Mutex
	held     [][]Held // what to release next, and what is to wait once more after it
	released int      // elements of held, since begin
	ticks    int
	round    int // number of the present time between begin and end
}

// init prepares for a server that lets a request wait that long for others.
func (q *quiet) init(delay time.Duration) {
	q.tick = quietTick + delay/quietTicks
	q.after = func(d time.Duration, f func()) { time.AfterFunc(d, f) }
}

// begin is called when a batch has ended.
func (q *quiet) begin(held [][]Held) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.round++
	q.held, q.released, q.ticks = held, 0, 0
	q.wait()
}

// end is called when a batch begins. It returns how many elements of held were released.
func (q *quiet) end() (released int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.round++
	released = q.released
	q.held, q.released = nil, 0
	return released
}

// wait has the next tick come, if there is anything to wait for.
func (q *quiet) wait() {
	if round := q.round; len(q.held) > 0 {
		q.after(q.tick, func() { q.passed(round) })
	}
}

// passed is a tick. The last request of a model that is being unloaded may be among those
// to release, so that Close is called here: nothing is locked then.
func (q *quiet) passed(round int) {
	for _, held := range q.due(round) {
		held.Release()
	}
}

func (q *quiet) due(round int) (held []Held) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if round != q.round {
		return nil
	}
	if q.ticks++; q.ticks == quietTicks {
		held = q.held[0]
		q.held, q.ticks = q.held[1:], 0
		q.released++
	}
	q.wait()
	return held
}
