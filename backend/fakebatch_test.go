package backend

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"unsafe" //nolint:depguard // only to lend a string that is overwritten later, as the server does

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

// ask is a request as a test writes it.
type ask struct {
	id         string // a number, or a text for models with string ids
	token      uint64 // distinguishes sequences of one ID; the batch slot does with the direct scheduler
	start, end bool
	cancelled  bool
	value      float64 // 0: one that no other request has
	err        error
	mangle     func(*Request)
	device     bool // the answer is wanted in the memory of a GPU
	parameters *Parameters
	rerun      *rerunWith // of one that was parked
}

func startOf(id any) ask { return ask{id: fmt.Sprint(id), start: true} }
func nextOf(id any) ask  { return ask{id: fmt.Sprint(id)} }
func endOf(id any) ask   { return ask{id: fmt.Sprint(id), end: true} }
func wholeOf(id any) ask { return ask{id: fmt.Sprint(id), start: true, end: true} }

// who is whose request it is.
func (a *ask) who() string {
	if a.token == 0 {
		return a.id
	}
	return fmt.Sprintf("%s by %d", a.id, a.token)
}

func (a ask) by(token uint64) ask       { a.token = token; return a }
func (a ask) cancel() ask               { a.cancelled = true; return a }
func (a ask) toDevice() ask             { a.device = true; return a }
func (a ask) saying(p Parameters) ask   { a.parameters = &p; return a }
func (a ask) unreadable(err error) ask  { a.err = err; return a }
func (a ask) with(f func(*Request)) ask { a.mangle = f; return a }

// keeps reports whether an END leaves the sequence in the store.
func (a *ask) keeps() bool { return a.parameters != nil && a.parameters.Keep }

// wrongInput makes the first input one that the model does not take.
func (a ask) wrongInput() ask { return a.with(func(r *Request) { r.Inputs[0].DType = tensor.Uint8 }) }

// fakeBatch is a batch that notes answers, and lends what it gives as the server
// does: after Finish the memory is something else.
type fakeBatch struct {
	t        testing.TB
	requests []Request
	lent     [][]byte
	answers  []answer
	pending  []pendingAnswer
	sends    int
	finished bool
	timing   Timing
	// call, if not nil, is called at the start of each method.
	call func()
	// faulty: requests without an answer are not a mistake.
	faulty bool
	// onDevice are the requests whose clients want their answers in the memory of a GPU.
	onDevice map[int]bool
	// ports are those of the outputs, if shapes are to be compared with bytes as the
	// server's side does.
	ports    []onnx.IOTensor
	reserved map[int][]uint64 // of each request
	there    map[uint64][]byte
	outliving
}

// answer is what a client got.
type answer struct {
	err        error
	shapes     []tensor.Shape
	outputs    [][]byte
	parameters *AnswerParameters
	times      int
}

type pendingAnswer struct {
	req, lane, lanes int
	outputs          []Output
}

func (b *fakeBatch) enter() {
	require.False(b.t, b.finished, "the batch was used after Finish")
	if b.call != nil {
		b.call()
	}
}

func (b *fakeBatch) Requests() []Request {
	b.enter()
	return b.requests
}

func (b *fakeBatch) Fail(req int, err error) {
	b.enter()
	require.Error(b.t, err)
	if b.answers[req].times == 0 && !b.parked[req] {
		b.answers[req] = answer{err: err, times: 1}
	}
}

func (b *fakeBatch) Answer(req int, outputs []Output, lane, lanes int) {
	b.enter()
	require.False(b.t, b.parked[req], "request %d was parked and answered", req)
	b.answers[req].times++
	require.Equal(b.t, 1, b.answers[req].times, "request %d was answered twice", req)
	b.pending = append(b.pending, pendingAnswer{req, lane, lanes, outputs})
}

// Reserve gives addresses of a GPU, each with a page of its own.
func (b *fakeBatch) Reserve(req int, outputs []Output, lane, lanes int) []uint64 {
	b.enter()
	require.NotContains(b.t, b.reserved, req, "request %d was reserved twice", req)
	require.Zero(b.t, b.answers[req].times)
	if b.reserved == nil {
		b.reserved, b.there = map[int][]uint64{}, map[uint64][]byte{}
	}
	places := make([]uint64, len(outputs))
	for i := range outputs {
		require.LessOrEqual(b.t, lane+lanes, outputs[i].Lanes)
		if b.onDevice[req] {
			places[i] = uint64(1+req)<<32 + uint64(i)<<16
			b.there[places[i]] = make([]byte, outputs[i].Layout.LaneBytes()*int64(lanes))
		}
	}
	b.reserved[req] = places
	return places
}

func (b *fakeBatch) Send() {
	b.enter()
	b.sends++
	b.send()
}

// send copies the answers out; until here the outputs were borrowed.
func (b *fakeBatch) send() {
	for _, p := range b.pending {
		a := &b.answers[p.req]
		for i := range p.outputs {
			o := &p.outputs[i]
			shape := o.Shape.Clone()
			if o.Batched {
				shape[0] = int64(p.lanes)
			}
			a.shapes = append(a.shapes, shape)
			if places := b.reserved[p.req]; places != nil && places[i] != 0 {
				a.outputs = append(a.outputs, b.there[places[i]])
				continue
			}
			a.outputs = append(a.outputs, lanesOf(o, p.lane, p.lanes))
			if b.ports != nil && b.ports[i].DType != tensor.Bytes {
				bytes, err := shape.Bytes(b.ports[i].DType)
				require.NoError(b.t, err, "output %q", b.ports[i].Name)
				require.Len(b.t, a.outputs[i], int(bytes), "output %q of shape %v", b.ports[i].Name, shape)
			}
		}
	}
	b.pending = nil
}

// lanesOf is the bytes that a client gets of some lanes.
func lanesOf(o *Output, lane, lanes int) (bytes []byte) {
	if o.Offsets != nil {
		return append(bytes, o.Tensor[o.Offsets[lane]:o.Offsets[lane+lanes]]...)
	}
	for j := lane; j < lane+lanes; j++ {
		for x := range o.Layout.Pieces {
			at := (x*int64(o.Lanes) + int64(j)) * o.Layout.PieceBytes
			bytes = append(bytes, o.Tensor[at:at+o.Layout.PieceBytes]...)
		}
	}
	return bytes
}

func (b *fakeBatch) Finish(timing Timing) {
	require.False(b.t, b.finished, "Finish was called twice")
	if b.call != nil {
		defer b.call() // even if it panics, it has done its work
	}
	b.send()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.finished, b.timing = true, timing
	for req := range b.answers {
		if b.answers[req].times == 0 && !b.parked[req] {
			require.True(b.t, b.faulty, "request %d has no answer", req)
			b.answers[req].err = status.Errorf(status.Internal, "no answer")
		}
		b.leave(req)
	}
	clear(b.requests)
	for _, bytes := range b.lent {
		for i := range bytes {
			bytes[i] = 0xDB
		}
	}
}

// lend is a string in memory that Finish overwrites.
func (b *fakeBatch) lend(text string) string {
	if text == "" {
		return ""
	}
	bytes := []byte(text)
	b.lent = append(b.lent, bytes)
	return unsafe.String(&bytes[0], len(bytes))
}

// recorder is a log that a test can read.
type recorder struct {
	least   slog.Level
	lines   *[]string
	context string
}

func newRecorder(least slog.Level) *recorder { return &recorder{least: least, lines: &[]string{}} }

func (r *recorder) Enabled(_ context.Context, l slog.Level) bool { return l >= r.least }
func (r *recorder) WithGroup(string) slog.Handler                { return r }

func (r *recorder) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *r
	for _, a := range attrs {
		c.context += " " + a.String()
	}
	return &c
}

func (r *recorder) Handle(_ context.Context, record slog.Record) error {
	line := record.Level.String() + " " + record.Message + r.context
	record.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	*r.lines = append(*r.lines, line)
	return nil
}

// having are the lines that hold a text.
func (r *recorder) having(text string) (found []string) {
	for _, line := range *r.lines {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

func (r *recorder) clear() { *r.lines = nil }
