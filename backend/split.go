package backend

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"

	"tritonstateful/statebuffer"
)

// Batch splitting: a batch may run as several smaller runs, because that measures
// faster. See docs/performance.md for what it gains.

// splitter decides how many lanes a run has, by what runs of the model have cost so
// far. A batch is one run, unless the states are large: what runs read and write
// may then leave the processor's caches, and several runs of a few lanes each can
// take half the time of one. With models that mostly compute it is the other way
// round. So the instance measures it.
//
// A batch is also split where the state of the next lane is not adjacent in memory, if
// the smaller runs cost about as much as the whole: then states need not be copied
// together.
//
// Costs are kept for sizes between two powers of two. Some batches try a size of
// which too little is known; they cost more, so they are few, and a size is not tried
// when one twice as large is already clearly worse than the best.
type splitter struct {
	on    bool
	costs [sizeClasses]cost // of a lane in a run of 2^i lanes, to less than 2^(i+1)
	// batches counts those that could be split, and single the runs of one lane.
	batches, single uint64
	size            int // the present batch is split into runs of about this many lanes
	adjacentFrom    int // from this many lanes on, a run may end where the next state is not adjacent
}

// sizeClasses is enough for any batch.
const sizeClasses = 32

// cost is what a lane takes, in nanoseconds: an exponential moving average.
type cost struct {
	mean    float64
	samples int
}

// One in this many batches that can be split tries a size: more of the first ones.
const (
	tryFirst, tryFirstUntil = 4, 64
	tryOften, tryOftenUntil = 16, 512
	trySeldom               = 128

	enoughSamples = 4
)

// What is better only counts if it is clearly better, and two lanes instead of one
// only if they take far less; what is this much worse is not tried any further.
const (
	farLess = 0.7
	clearly = 0.92
	nearly  = 1.08
	worse   = 1.25
)

// splitFrom is the size of a sequence's states, in bytes, from which batches may
// be split. Below it a whole batch stays in the caches.
const splitFrom = 64 << 10

func newSplitter(on bool) splitter {
	return splitter{on: on, size: math.MaxInt, adjacentFrom: math.MaxInt}
}

func sizeClass(lanes int) int { return bits.Len(uint(lanes)) - 1 }

// begin decides on the runs of a batch of that many requests.
func (s *splitter) begin(requests int) {
	s.size, s.adjacentFrom = math.MaxInt, math.MaxInt
	if !s.on || requests < 4 {
		return
	}
	whole := sizeClass(requests)
	s.batches++
	if size := s.trial(whole); size >= 0 {
		s.size, s.adjacentFrom = 1<<size, 1<<size
		return
	}
	size := s.best(whole)
	s.size, s.adjacentFrom = 1<<size, 1<<size
	for i := size - 1; i > 0 && s.measured(i) && s.costs[i].mean <= nearly*s.costs[size].mean; i-- {
		s.adjacentFrom = 1 << i
	}
}

// splits reports whether the batch may be split.
func (s *splitter) splits() bool { return s.size != math.MaxInt }

// best is the size that costs least: the whole batch, unless another one is
// clearly better.
func (s *splitter) best(whole int) int {
	if !s.measured(whole) {
		return whole
	}
	best, least := whole, clearly*s.costs[whole].mean
	for i := whole - 1; i > 0; i-- {
		if s.measured(i) && s.costs[i].mean < least {
			best, least = i, s.costs[i].mean
		}
	}
	return best
}

func (s *splitter) measured(size int) bool { return s.costs[size].samples >= enoughSamples }

// trial is the size that the batch is to try, or negative: the largest of which
// too little is known, else each in turn that is not far worse than the best.
func (s *splitter) trial(whole int) int {
	every := uint64(trySeldom)
	switch {
	case s.batches <= tryFirstUntil:
		every = tryFirst
	case s.batches <= tryOftenUntil:
		every = tryOften
	}
	if s.batches%every != 0 {
		return -1
	}
	lowest := whole // that is worth a try
	least := s.costs[whole].mean
	for lowest > 1 && (lowest == whole || s.costs[lowest].mean <= worse*least) {
		lowest--
		if !s.measured(lowest) {
			return lowest
		}
		least = min(least, s.costs[lowest].mean)
	}
	return lowest + int(s.batches/every)%(whole-lowest+1)
}

// nextLanes is how many lanes the next run may have when this many requests are left:
// equal shares of the size that is wanted, or a little more.
func (s *splitter) nextLanes(requests int) int {
	if !s.splits() {
		return math.MaxInt
	}
	runs := max(1, requests/s.size)
	return (requests + runs - 1) / runs
}

// lanesFor is how many lanes a run of n requests has: one more than one, if the
// model takes far longer for a single lane. Some are faster with two.
func (s *splitter) lanesFor(n, most int) int {
	if !s.on || n != 1 || most < 2 || !s.measured(0) || !s.measured(1) || 2*s.costs[1].mean > farLess*s.costs[0].mean {
		return n
	}
	if s.single++; s.single%trySeldom == 0 {
		return n
	}
	return 2
}

// ran notes how long the model took for a run of this many lanes.
func (s *splitter) ran(lanes int, took time.Duration) {
	if !s.on || lanes < 1 || took <= 0 {
		return
	}
	c := &s.costs[sizeClass(lanes)]
	each := float64(took) / float64(lanes)
	if c.samples++; c.samples == 1 {
		c.mean = each
		return
	}
	c.mean += (min(each, 4*c.mean) - c.mean) / float64(min(c.samples, 16))
}

// endsBefore reports whether the run is to end before a request, when left requests have
// not been looked at and the run may have most lanes.
func (e *execution) endsBefore(req, left, most int) bool {
	n, adjacentFrom := len(e.lanes), e.in.splitter.adjacentFrom
	switch {
	case n >= e.in.plan.MaxLanes:
		return true
	case e.retried:
		return false
	case left < 2 || n < most && n < adjacentFrom: // no request is left to run by itself
		return false
	case n >= most:
		return true
	default:
		return left >= adjacentFrom && !statebuffer.Adjacent(e.lanes[n-1].Sequence, e.arrivals[req].continuing)
	}
}

// compareLocations orders the requests of a batch that is split: those without START
// first, and these by where their states are. Requests of one sequence stay in the order
// in which they came, which those of free sequences do because they all have the place of what
// is live.
func (e *execution) compareLocations(a, b int) int {
	return cmp.Or(
		cmp.Compare(index(e.requests[a].Start && !e.in.free), index(e.requests[b].Start && !e.in.free)),
		statebuffer.CompareLocations(e.arrivals[a].continuing, e.arrivals[b].continuing),
	)
}

// split has the splitter decide on the requests that run first, and orders them.
func (e *execution) split() {
	if e.queue.left == 0 {
		return
	}
	_, requests := e.queue.first()
	if e.in.splitter.begin(len(requests)); e.in.splitter.splits() {
		slices.SortStableFunc(requests, e.compareLocations)
	}
}

// arranger puts the lanes of a run into the order that the store would like.
type arranger struct {
	members []member
	lanes   []statebuffer.Lane
}

// arrange orders the lanes of the run so that their states need not be moved, if
// that is possible. Clients never see in which order their requests run.
func (a *arranger) arrange(e *execution) {
	if len(e.members) != len(e.lanes) { // a request has several lanes: there are no sequences
		return
	}
	order := e.in.store.Arrange(e.lanes)
	if order == nil {
		return
	}
	a.members, a.lanes = append(a.members[:0], e.members...), append(a.lanes[:0], e.lanes...)
	for to, from := range order {
		e.members[to], e.lanes[to] = a.members[from], a.lanes[from]
		e.members[to].firstLane = to
	}
}
