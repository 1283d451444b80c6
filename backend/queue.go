package backend

import (
	"cmp"
	"hash/maphash"
	"slices"

	"tritonstateful/statebuffer"
)

// queue is the rows of a batch that still have to run, in the order to take them. It
// is cut into groups; the rows of a run are of one group. At first a batch is one. Of
// the rows that cannot run with the first of them, those that can run together become
// groups: so each is compared with the others once, and not again before every run.
type queue struct {
	rows   []int   // of the batch; the last so many still have to run:
	left   int     // as many as the groups have
	groups []group // the first one last

	// Of the rows that were put off while a group was looked at:
	turns []turn                     // by row
	ids   map[statebuffer.Key]uint32 // how many there are of a sequence
	kinds map[uint64]uint32          // the kinds that there are, in the order in which they came
	seed  maphash.Seed
}

// group is rows that follow one another in a queue.
type group struct {
	rows int
	// sorted: they were put off and belong together. No two are of one sequence.
	sorted bool
	// again: they have been in a run that was undone, and run at once.
	again bool
}

// turn tells which of the rows that were put off run together, and in what order.
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

// reset makes the queue an empty one, with room for so many rows.
func (q *queue) reset(rows int) {
	q.rows, q.groups, q.left = q.rows[:0], q.groups[:0], 0
	q.turns = slices.Grow(q.turns[:0], rows)[:rows]
	q.forget()
}

// add puts a row at the end.
func (q *queue) add(row int) { q.rows = append(q.rows, row) }

// close makes one group of all that were added.
func (q *queue) close() { q.push(group{rows: len(q.rows)}) }

// waiting are the rows that still have to run.
func (q *queue) waiting() []int { return q.rows[len(q.rows)-q.left:] }

// first is the first group, of which there must be one. It stays until giveBack; what
// is given back overwrites the rows.
func (q *queue) first() (g group, rows []int) {
	g = q.groups[len(q.groups)-1]
	return g, q.waiting()[:g.rows]
}

// push puts a group in front, whose rows stand before those that wait.
func (q *queue) push(g group) {
	if g.rows > 0 {
		q.groups = append(q.groups, g)
		q.left += g.rows
	}
}

// back puts the rows of a run in front, which is where they were, as so many groups.
func (q *queue) back(rows []int, groups int) {
	end, left := len(q.rows)-q.left, len(rows)
	copy(q.rows[end-left:end], rows)
	for ; groups > 0; groups-- {
		size := (left + groups - 1) / groups
		q.push(group{rows: size, sorted: true, again: true})
		left -= size
	}
}

// looks tells whether rows have been put off while this group is looked at.
func (q *queue) looks() bool { return len(q.kinds) > 0 }

// follows tells whether an earlier row of the same sequence was put off: then this one
// has to wait too, whatever it is.
func (q *queue) follows(id statebuffer.Key) bool {
	return len(q.ids) > 0 && q.ids[id] > 0
}

// putOff notes that a row waits, of a sequence and a kind.
func (q *queue) putOff(row int, id statebuffer.Key, kind uint64) {
	known, ok := q.kinds[kind]
	if !ok {
		known = uint32(len(q.kinds))
		q.kinds[kind] = known
	}
	q.turns[row] = turn{kind: known}
	if id.Number != 0 || id.Text != "" {
		q.turns[row].round = q.ids[id]
		q.ids[id]++
	}
}

// giveBack takes the first group away, but for those rows that have to wait: the first
// so many, which were put off, and those from rest on, at which nobody has looked.
func (q *queue) giveBack(putOff, rest int) {
	g, rows := q.first()
	q.groups = q.groups[:len(q.groups)-1]
	q.left -= g.rows
	whole := rest == len(rows)
	copy(rows[rest-putOff:rest], rows[:putOff])
	rows = rows[rest-putOff:]
	switch {
	case whole && !g.sorted && putOff > 1:
		q.sort(rows, true)
	default:
		g.rows = len(rows)
		q.push(g)
	}
	q.forget()
}

// forget ends the look at a group.
func (q *queue) forget() {
	if q.looks() {
		clear(q.ids) // its texts are borrowed
		clear(q.kinds)
	}
}

// sort makes groups of the rows that have one turn.
func (q *queue) sort(rows []int, sorted bool) {
	slices.SortStableFunc(rows, func(a, b int) int { return q.turns[a].compare(q.turns[b]) })
	end := len(rows)
	for at := end - 1; at >= 0; at-- {
		if at == 0 || q.turns[rows[at-1]] != q.turns[rows[at]] {
			q.push(group{rows: end - at, sorted: sorted})
			end = at
		}
	}
}
