package backend

import (
	"math"
	"math/bits"
	"time"
)

// pace decides how many lanes a run has, by what runs of the model have cost so
// far. A batch is one run, unless the states are large: what runs read and write
// may then leave the processor's caches, and several runs of a few lanes each can
// take half the time of one. With models that mostly compute it is the other way
// round. So the instance measures it.
//
// A batch is also cut where the states of the next lane lie elsewhere, if the parts
// cost about as much as the whole: then they need not be copied together.
//
// Costs are kept for sizes between two powers of two. Some batches try a size of
// which too little is known; they cost more, so they are few, and a size is left
// alone when one twice as large is already clearly worse than the best.
type pace struct {
	on    bool
	costs [paceSizes]cost // of a lane in a run of 2^i lanes, to less than 2^(i+1)
	// batches counts those that could be cut, and alone the runs of a single lane.
	batches, alone uint64
	size           int // the present batch is cut into runs of about so many lanes
	least          int // from so many lanes on, a run may end where the next state is elsewhere
}

// paceSizes is enough for any batch.
const paceSizes = 32

// cost is what a lane takes, in nanoseconds: a mean that forgets.
type cost struct {
	mean    float64
	samples int
}

// Of the batches that can be cut, one of so many tries a size: more of the first
// ones.
const (
	tryFirst, tryFirstUntil = 4, 64
	tryOften, tryOftenUntil = 16, 512
	trySeldom               = 128

	enoughSamples = 4
)

// What is better only counts if it is clearly better, and two lanes instead of one
// only if they take far less; what is this much worse is not looked at any further.
const (
	farLess = 0.7
	clearly = 0.92
	nearly  = 1.08
	worse   = 1.25
)

// paceFrom is the size of a sequence's states, in bytes, from which batches may
// be cut. Below it a whole batch stays in the caches.
const paceFrom = 64 << 10

func newPace(on bool) pace { return pace{on: on, size: math.MaxInt, least: math.MaxInt} }

func paceSize(lanes int) int { return bits.Len(uint(lanes)) - 1 }

// begin plans the runs of a batch of that many requests.
func (p *pace) begin(requests int) {
	p.size, p.least = math.MaxInt, math.MaxInt
	if !p.on || requests < 4 {
		return
	}
	whole := paceSize(requests)
	p.batches++
	if size := p.attempt(whole); size >= 0 {
		p.size, p.least = 1<<size, 1<<size
		return
	}
	size := p.best(whole)
	p.size, p.least = 1<<size, 1<<size
	for i := size - 1; i > 0 && p.known(i) && p.costs[i].mean <= nearly*p.costs[size].mean; i-- {
		p.least = 1 << i
	}
}

// cuts tells whether the batch may be cut.
func (p *pace) cuts() bool { return p.size != math.MaxInt }

// best is the size that costs least: the whole batch, unless another one is
// clearly better.
func (p *pace) best(whole int) int {
	if !p.known(whole) {
		return whole
	}
	best, least := whole, clearly*p.costs[whole].mean
	for i := whole - 1; i > 0; i-- {
		if p.known(i) && p.costs[i].mean < least {
			best, least = i, p.costs[i].mean
		}
	}
	return best
}

func (p *pace) known(size int) bool { return p.costs[size].samples >= enoughSamples }

// attempt is the size that the batch is to try, or negative: the largest of which
// too little is known, else each in turn that is not far worse than the best.
func (p *pace) attempt(whole int) int {
	every := uint64(trySeldom)
	switch {
	case p.batches <= tryFirstUntil:
		every = tryFirst
	case p.batches <= tryOftenUntil:
		every = tryOften
	}
	if p.batches%every != 0 {
		return -1
	}
	lowest := whole // that is worth a try
	least := p.costs[whole].mean
	for lowest > 1 && (lowest == whole || p.costs[lowest].mean <= worse*least) {
		lowest--
		if !p.known(lowest) {
			return lowest
		}
		least = min(least, p.costs[lowest].mean)
	}
	return lowest + int(p.batches/every)%(whole-lowest+1)
}

// share is how many lanes the next run may have when so many requests are left:
// equal shares of the size that is wanted, or a little more.
func (p *pace) share(requests int) int {
	if !p.cuts() {
		return math.MaxInt
	}
	runs := max(1, requests/p.size)
	return (requests + runs - 1) / runs
}

// lanes is how many lanes a run of n requests has: one more than one, if the
// model takes far longer for a lane alone. Some are faster with two.
func (p *pace) lanes(n, most int) int {
	if !p.on || n != 1 || most < 2 || !p.known(0) || !p.known(1) || 2*p.costs[1].mean > farLess*p.costs[0].mean {
		return n
	}
	if p.alone++; p.alone%trySeldom == 0 {
		return n
	}
	return 2
}

// ran notes how long the model took for a run of so many lanes.
func (p *pace) ran(lanes int, took time.Duration) {
	if !p.on || lanes < 1 || took <= 0 {
		return
	}
	c := &p.costs[paceSize(lanes)]
	each := float64(took) / float64(lanes)
	if c.samples++; c.samples == 1 {
		c.mean = each
		return
	}
	c.mean += (min(each, 4*c.mean) - c.mean) / float64(min(c.samples, 16))
}
