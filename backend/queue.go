package backend

import (
	"cmp"
	"hash/maphash"
	"slices"

	"tritonstateful/statebuffer"
)

// queue is the requests of a batch that still have to run, in the order to take them. It
// is divided into groups; the requests of a run are of one group. At first a batch is one. Of
// the requests that cannot run with the first of them, those that can run together become
// groups: so each is compared with the others once, and not again before every run.
type queue struct {
	requests []int   // of the batch; the last ones still have to run
	left     int     // how many these are: as many as the groups have
	groups   []group // the first one last

	// Of the requests that were put off while a group was looked at:
	turns []turn                     // of each request
	ids   map[statebuffer.Key]uint32 // how many there are of a sequence
	kinds map[uint64]uint32          // the kinds that there are, in the order in which they came
	seed  maphash.Seed
}

// group is requests that follow one another in a queue.
type group struct {
	size int // the number of its requests
	// sorted: they were put off and belong together. No two are of one sequence.
	sorted bool
	// retried: they have been in a run that was undone, and run at once.
	retried bool
}

// turn says which of the requests that were put off run together, and in what order.
type turn struct {
	round uint32 // how many earlier ones are of the same sequence
	kind  uint32
}

func (a turn) compare(b turn) int {
	return cmp.Or(cmp.Compare(a.round, b.round), cmp.Compare(a.kind, b.kind))
}

func newQueue() queue {
	return queue{ids: map[statebuffer.Key]uint32{}, kinds: map[uint64]uint32{}, seed: maphash.MakeSeed()}
}

// reset makes the queue an empty one, with room for a number of requests.
func (q *queue) reset(requests int) {
	q.requests, q.groups, q.left = q.requests[:0], q.groups[:0], 0
	q.turns = slices.Grow(q.turns[:0], requests)[:requests]
	q.forget()
}

// add puts a request at the end.
func (q *queue) add(req int) { q.requests = append(q.requests, req) }

// close makes one group of all that were added.
func (q *queue) close() { q.push(group{size: len(q.requests)}) }

// waiting are the requests that still have to run.
func (q *queue) waiting() []int { return q.requests[len(q.requests)-q.left:] }

// first is the first group, of which there must be one. It stays until giveBack; what
// is given back overwrites the requests.
func (q *queue) first() (g group, requests []int) {
	g = q.groups[len(q.groups)-1]
	return g, q.waiting()[:g.size]
}

// push puts a group in front, whose requests stand before those that wait.
func (q *queue) push(g group) {
	if g.size > 0 {
		q.groups = append(q.groups, g)
		q.left += g.size
	}
}

// back puts the members of a run in front, which is where they were, in a number of groups.
func (q *queue) back(members []member, groups int) {
	left := len(members)
	to := q.requests[len(q.requests)-q.left-left:]
	for i, m := range members {
		to[i] = m.req
	}
	for ; groups > 0; groups-- {
		size := (left + groups - 1) / groups
		q.push(group{size: size, sorted: true, retried: true})
		left -= size
	}
}

// looks reports whether requests have been put off while this group is looked at.
func (q *queue) looks() bool { return len(q.kinds) > 0 }

// follows reports whether an earlier request of the same sequence was put off: then this one
// has to wait too, whatever it is.
func (q *queue) follows(id statebuffer.Key) bool {
	return len(q.ids) > 0 && q.ids[id] > 0
}

// putOff notes that a request waits, of a sequence and a kind.
func (q *queue) putOff(req int, id statebuffer.Key, kind uint64) {
	order, ok := q.kinds[kind]
	if !ok {
		order = uint32(len(q.kinds))
		q.kinds[kind] = order
	}
	q.turns[req] = turn{kind: order}
	if id.Number != 0 || id.Text != "" {
		q.turns[req].round = q.ids[id]
		q.ids[id]++
	}
}

// giveBack takes the first group away, except the requests that have to wait: those that
// were put off, which are the first ones, and those from rest on, which were not looked at.
func (q *queue) giveBack(putOff, rest int) {
	g, requests := q.first()
	q.groups = q.groups[:len(q.groups)-1]
	q.left -= g.size
	whole := rest == len(requests)
	copy(requests[rest-putOff:rest], requests[:putOff])
	requests = requests[rest-putOff:]
	switch {
	case whole && !g.sorted && putOff > 1:
		q.sort(requests, true)
	default:
		g.size = len(requests)
		q.push(g)
	}
	q.forget()
}

// forget ends the look at a group.
func (q *queue) forget() {
	if q.looks() {
		clear(q.ids) // its strings are borrowed
		clear(q.kinds)
	}
}

// sort makes groups of the requests that have one turn.
func (q *queue) sort(requests []int, sorted bool) {
	slices.SortStableFunc(requests, func(a, b int) int { return q.turns[a].compare(q.turns[b]) })
	end := len(requests)
	for i := end - 1; i >= 0; i-- {
		if i == 0 || q.turns[requests[i-1]] != q.turns[requests[i]] {
			q.push(group{size: end - i, sorted: sorted})
			end = i
		}
	}
}

// kind is a number that requests have in common if they can share a run, and hardly ever
// otherwise: it says which to compare. The request need not be valid.
func (e *execution) kind(req int) uint64 {
	r, in := &e.requests[req], e.in
	pl := in.plan
	if r.Err != nil || !pl.Varies && !pl.Shares {
		return 0
	}
	var h maphash.Hash
	h.SetSeed(e.queue.seed)
	for i := range pl.Inputs {
		hashInput(&pl.Inputs[i], &h, &r.Inputs[i])
	}
	var sequence *statebuffer.Sequence // as joins has it
	if !r.Start {
		sequence = in.store.Live(r.key())
	}
	for i := range pl.Generated {
		hashGenerated(&pl.Generated[i], &h, r, sequence)
	}
	in.store.HashShapes(&h, sequence)
	return h.Sum64()
}
