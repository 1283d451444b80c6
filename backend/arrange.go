package backend

import "tritonstateful/statebuffer"

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
