package parity

import (
	"fmt"
	"slices"

	"tritonstateful/backend"
	"tritonstateful/internal/cli/localserver"
	"tritonstateful/internal/cli/scratch"
)

// skipped is a comparison that says nothing about this model.
func skipped(name, why string) Result {
	return Result{Name: name, Verdict: Skipped, Where: why, ByStep: []float64{}}
}

// alone has each sequence run by itself.
func (c *checker) alone(in *localserver.Instance) answers {
	got := c.none()
	for lane := range got {
		for step := range got[lane] {
			got[lane][step] = in.Run([]localserver.Request{c.request(lane, step, 0)})[0]
		}
		c.end(in, []int{lane})
	}
	return got
}

// together has the sequences run side by side, some steps of each: order says in which order they come in a batch.
func (c *checker) together(in *localserver.Instance, got answers, from, to int, order func(step int) []int) {
	for step := from; step < to; step++ {
		lanes := order(step)
		requests := make([]localserver.Request, len(lanes))
		for i, lane := range lanes {
			requests[i] = c.request(lane, step, i)
		}
		for i, answer := range in.Run(requests) {
			got[lanes[i]][step] = answer
		}
	}
}

const oneLane = "one request runs at a time"

// batched compares sequences side by side with each alone.
func (c *checker) batched(in *localserver.Instance) Result {
	const name = "batched"
	if c.options.Lanes == 1 {
		return skipped(name, oneLane)
	}
	got := c.none()
	c.together(in, got, 0, c.options.Steps, func(int) []int { return c.order() })
	c.end(in, c.order())
	return c.against(name, got, c.order(), 0)
}

// permuted has the sequences begin one after the other, and come in another order in each batch, so that the lanes and the
// neighbors of a sequence change. With the direct scheduler a sequence keeps its batch slot: only the slots are others.
func (c *checker) permuted(in *localserver.Instance) Result {
	const name = "permuted"
	if c.options.Lanes == 1 {
		return skipped(name, oneLane)
	}
	got, lanes := c.none(), c.order()
	if in.Direct() {
		slices.Reverse(lanes)
		c.together(in, got, 0, c.options.Steps, func(int) []int { return lanes })
		c.end(in, lanes)
		return c.against(name, got, c.order(), 0)
	}
	const late = 3 // lanes begin up to two batches after the first
	for tick := range c.options.Steps + late - 1 {
		var requests []localserver.Request
		var who []int
		for i := range lanes {
			lane := (i*(tick%2*(len(lanes)-2)+1) + tick) % len(lanes)
			if slices.Contains(who, lane) {
				continue
			}
			if step := tick - lane%late; step >= 0 && step < c.options.Steps {
				requests, who = append(requests, c.request(lane, step, 0)), append(who, lane)
			}
		}
		if len(requests) == 0 {
			continue
		}
		for i, answer := range in.Run(requests) {
			got[who[i]][tick-who[i]%late] = answer
		}
	}
	c.end(in, c.order())
	return c.against(name, got, c.order(), 0)
}

// restarted begins sequences whose ID has just been used, once after an END and once without.
func (c *checker) restarted(in *localserver.Instance) Result {
	const name = "restarted"
	if c.id(0) == 0 {
		return skipped(name, "the model has no sequences")
	}
	got := c.none()
	c.together(in, got, 0, c.options.Steps, func(int) []int { return c.order() }) // until the END
	c.end(in, c.order())
	c.together(in, got, 0, (c.options.Steps+1)/2, func(int) []int { return c.order() }) // and left
	got = c.none()
	c.together(in, got, 0, c.options.Steps, func(int) []int { return c.order() })
	c.end(in, c.order())
	return c.against(name, got, c.order(), 0)
}

// restored saves the sequences half way, has another instance get them back from the store, and go on.
func (c *checker) restored() Result {
	const name = "restored"
	if c.id(0) == 0 {
		return skipped(name, "the model has no sequences")
	}
	half := c.options.Steps / 2
	if half == 0 {
		return skipped(name, "one step cannot be split")
	}
	failed := func(err error) Result {
		return Result{Name: name, Verdict: Failed, Where: err.Error(), ByStep: []float64{}}
	}
	folder, remove, err := scratch.Folder("tritonstateful-check-")
	if err != nil {
		return failed(err)
	}
	defer remove()
	got := c.none()
	keeps, err := c.leave("file:"+folder, got, half)
	if err != nil {
		return failed(err)
	}
	if !keeps {
		return skipped(name, "nothing of a sequence is kept between its requests")
	}
	if err := c.goOn("file:"+folder, got, half); err != nil {
		return failed(err)
	}
	return c.against(name, got, c.order(), half)
}

// leave runs the sequences up to a step, and has them saved. It reports whether they have anything to save.
func (c *checker) leave(store string, got answers, half int) (keeps bool, err error) {
	in, err := c.load(store)
	if err != nil {
		return false, err
	}
	defer in.Close()
	if !in.Keeps() {
		return false, nil
	}
	c.together(in, got, 0, half-1, func(int) []int { return c.order() })
	return true, c.with(in, got, half-1, func(r *localserver.Request) { r.Parameters = &backend.Parameters{Step: -1, Save: true} })
}

// goOn continues the sequences on another instance.
func (c *checker) goOn(store string, got answers, half int) error {
	in, err := c.load(store)
	if err != nil {
		return err
	}
	defer in.Close()
	err = c.with(in, got, half, func(r *localserver.Request) {
		r.Start, r.Parameters = true, &backend.Parameters{Step: -1, Resume: backend.ResumeRequire}
	})
	c.together(in, got, half+1, c.options.Steps, func(int) []int { return c.order() })
	c.end(in, c.order())
	return err
}

// with runs a step of all sequences, whose requests are changed.
func (c *checker) with(in *localserver.Instance, got answers, step int, change func(*localserver.Request)) error {
	requests := make([]localserver.Request, c.options.Lanes)
	for lane := range requests {
		requests[lane] = c.request(lane, step, lane)
		change(&requests[lane])
	}
	for lane, answer := range in.Run(requests) {
		if got[lane][step] = answer; answer.Err != nil {
			return fmt.Errorf("sequence %d, step %d: %w", lane, step, answer.Err)
		}
	}
	return nil
}
