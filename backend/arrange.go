package backend

import "tritonstateful/statebuffer"

// arranger puts the lanes of a run into the order that the store would like.
type arranger struct {
	rows  []int
	lanes []statebuffer.Lane
}

// arrange orders the lanes of the run so that their states need not be moved, if
// that is possible. Clients never see in which order their requests run.
func (a *arranger) arrange(x *execution) {
	if len(x.rows) != len(x.lanes) { // a row takes several lanes: there are no sequences
		return
	}
	order := x.in.store.Arrange(x.lanes)
	if order == nil {
		return
	}
	a.rows, a.lanes = append(a.rows[:0], x.rows...), append(a.lanes[:0], x.lanes...)
	for i, lane := range order {
		x.rows[i], x.lanes[i] = a.rows[lane], a.lanes[lane]
	}
}
