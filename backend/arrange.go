package backend

import "tritonstateful/statebuffer"

// arranger puts the lanes of a run into the order that the store would like.
type arranger struct {
	rows  []int
	lanes []statebuffer.Lane
}

// arrange orders the lanes of the run so that their states need not be moved, if
// that is possible. Clients never see in which order their requests run.
func (a *arranger) arrange(e *execution) {
	if len(e.rows) != len(e.lanes) { // a row takes several lanes: there are no sequences
		return
	}
	order := e.in.store.Arrange(e.lanes)
	if order == nil {
		return
	}
	a.rows, a.lanes = append(a.rows[:0], e.rows...), append(a.lanes[:0], e.lanes...)
	for i, lane := range order {
		e.rows[i], e.lanes[i] = a.rows[lane], a.lanes[lane]
	}
}
