package backend

import (
	"sync"
	"time"
)

// tickEvery is how often an instance looks after its sequences while it has no requests: so
// often do gauges change that no batch updates.
const tickEvery = 5 * time.Second

// ticker looks after an instance between batches. Its zero value does nothing.
type ticker struct {
	// mu is held by whoever uses the instance: Execute, which the server calls and whatever
	// runs parked requests again, a tick, Close.
	mu     sync.Mutex
	after  func(time.Duration, func()) // Server.After
	closed bool
}

// startTicks begins to look after an instance.
func (in *Instance) startTicks() {
	if in.ticker.after = in.server().After; in.ticker.after != nil {
		in.ticker.after(tickEvery, in.tick)
	}
}

// tick ends sequences whose clients are gone and frees their memory, as the end of a batch
// does, updates the gauges and reports the memory in use. While a batch runs it does nothing.
func (in *Instance) tick() {
	t := &in.ticker
	if t.mu.TryLock() {
		defer t.mu.Unlock()
		if t.closed {
			return
		}
		in.idle()
	}
	t.after(tickEvery, in.tick)
}

func (in *Instance) idle() {
	defer in.work.survive()
	now := in.server().Clock()
	in.store.BeginBatch(now)
	in.work.timings.begin(now)
	in.work.timing, in.work.succeeded = Timing{}, 0 // of no run
	in.maintain(&in.work)
	in.reportMemory()
}

// stop waits for a tick that is under way; no other one follows.
func (t *ticker) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}
