package main

import (
	"encoding/binary"
	"io"
	"sync"
	"time"
)

// Flags of a record.
const (
	flagStart = 1 << iota
	flagEnd
	flagCancelled // we broke the request off, so that it may have run or not
	flagEmpty     // the answer has no values
)

// appendRecord appends an exchange as the checker reads it (scripts/history.py), little-endian:
//
//	uint32 length of the error in bytes; uint16 number of the model; uint16 flags; uint64 correlation ID
//	int64 name, successor, least, greatest, count, sent (ns since began), latency (ns)
//	the error
//
// An exchange that is not done counts as cancelled, and has no values.
func appendRecord(to []byte, model int, id uint64, x *exchange, began time.Time) []byte {
	var flags uint16
	for _, one := range []struct {
		set  bool
		flag uint16
	}{{x.start, flagStart}, {x.end, flagEnd}, {!x.done, flagCancelled}, {x.empty, flagEmpty}} {
		if one.set {
			flags |= one.flag
		}
	}
	order := binary.LittleEndian
	to = order.AppendUint32(to, uint32(len(x.err)))
	to = order.AppendUint16(to, uint16(model))
	to = order.AppendUint16(to, flags)
	to = order.AppendUint64(to, id)
	for _, value := range [...]int64{x.name, x.successor, x.values[0], x.values[1], x.values[2], int64(x.sent.Sub(began)), int64(x.latency)} {
		to = order.AppendUint64(to, uint64(value))
	}
	return append(to, x.err...)
}

const (
	writeEvery = 20 * time.Millisecond // seldom enough that the checker is not woken for a few records
	mostBytes  = 4 << 20               // that wait for the checker; then the streams wait, too
)

// recorder hands exchanges to the checker from a goroutine of its own. Any number of streams may put at the same time; what
// one of them puts stays in order. In the long run it allocates nothing.
type recorder struct {
	out   io.Writer
	began time.Time

	mu      sync.Mutex
	room    sync.Cond
	waiting []byte // records to write

	// Of the goroutine:
	spare   []byte
	err     error // of the first write that failed; what follows is not written
	closing chan struct{}
	closed  chan struct{}
}

func newRecorder(out io.Writer) *recorder {
	r := &recorder{out: out, began: time.Now(), closing: make(chan struct{}), closed: make(chan struct{})}
	r.room.L = &r.mu
	go r.run()
	return r
}

// put records an exchange that is over. The exchange may change afterwards.
func (r *recorder) put(model int, id uint64, x *exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.waiting) >= mostBytes {
		r.room.Wait()
	}
	r.waiting = appendRecord(r.waiting, model, id, x, r.began)
}

// close writes what is left. Nothing may be put from then on. The error is that of the first write that failed.
func (r *recorder) close() error {
	close(r.closing)
	<-r.closed
	return r.err
}

func (r *recorder) run() {
	defer close(r.closed)
	tick := time.NewTicker(writeEvery)
	defer tick.Stop()
	for last := false; !last; {
		select {
		case <-tick.C:
		case <-r.closing:
			last = true
		}
		r.write()
	}
}

func (r *recorder) write() {
	r.mu.Lock()
	r.waiting, r.spare = r.spare[:0], r.waiting
	r.room.Broadcast()
	r.mu.Unlock()
	if r.err == nil && len(r.spare) > 0 {
		_, r.err = r.out.Write(r.spare)
	}
}
