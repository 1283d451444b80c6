package backend

import (
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// fillKind is what the backend fills an input of the model with.
type fillKind uint8

const (
	fillStart     fillKind = iota // whether the sequence starts
	fillEnd                       // whether it ends
	fillReady                     // whether the lane is in use
	fillID                        // the correlation ID
	fillConstant                  // the same value always
	fillSteps                     // steps of the sequence before this one
	fillBefore                    // summed lengths of an input or an output before this step
	fillAfter                     // the same with this step
	fillMask                      // which parts of padded states count
	fillPositions                 // where in the sequence each element of an input stands
)

var kindNames = map[fillKind]string{
	fillStart: "start", fillEnd: "end", fillReady: "ready", fillID: "correlation ID",
	fillConstant: "constant", fillSteps: "steps", fillBefore: "length before", fillAfter: "length after", fillMask: "mask",
	fillPositions: "positions",
}

// fillWire is a model input that the backend fills by itself.
type fillWire struct {
	kind  fillKind
	name  string
	at    int
	axis  int
	dims  tensor.Shape // one element for each lane, except for a constant
	dtype tensor.DType
	// value holds the bytes of a lane for false and true; a constant has one.
	value [2][]byte
	// source counts in wiring.lengths; plus is added to what is counted.
	source int
	plus   int64
	along  int       // of positions only: the axis along which they go on
	mask   *maskWire // of a mask only
	statebuffer.Layout
}

// lengthSource is an input or an output whose extent at an axis is summed up per
// sequence.
type lengthSource struct {
	name   string
	axis   int  // of the model's tensor
	at     int  // position in the signature
	output bool // at counts in its outputs
	input  int  // position in wiring.inputs, unless it is an output
}

// maskWire is what a mask tells of: for each lane 0 where the states are padding,
// and 1 for what is theirs and for this step's part of an input, if one is named.
type maskWire struct {
	states string // their name, which may be a pattern
	axis   int    // of the mask's own length
	covers []int  // positions of the states in wiring.varying
	length int    // position in wiring.lengths, or -1
}

// String is the kind in the load report.
func (k fillKind) String() string { return kindNames[k] }

// flag returns the bytes of a lane for false or true.
func (f *fillWire) flag(on bool) []byte {
	if on {
		return f.value[1]
	}
	return f.value[0]
}
