package backend

// noteTimes notes for each traced member of the run what it did when. If the member runs
// again, its last run counts.
func (e *execution) noteTimes(times RunTimes) {
	if !e.traced {
		return
	}
	times.End = e.timings.last
	for _, m := range e.members {
		if to := e.requests[m.req].Trace; to != nil {
			*to = times
		}
	}
}
