package plan

import (
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// Kind is what the backend fills an input of the model with.
type Kind uint8

const (
	KindStart        Kind = iota // whether the sequence starts
	KindEnd                      // whether it ends
	KindReady                    // whether the lane is in use
	KindID                       // the correlation ID
	KindConstant                 // the same value always
	KindSteps                    // steps of the sequence before this one
	KindLengthBefore             // summed lengths of an input or an output before this step
	KindLengthAfter              // the same with this step
	KindMask                     // which parts of padded states count
	KindPositions                // where in the sequence each element of an input stands
)

var kindNames = map[Kind]string{
	KindStart: "start", KindEnd: "end", KindReady: "ready", KindID: "correlation ID",
	KindConstant: "constant", KindSteps: "steps", KindLengthBefore: "length before", KindLengthAfter: "length after", KindMask: "mask",
	KindPositions: "positions",
}

// Generated is a model input that the backend fills by itself.
type Generated struct {
	Kind  Kind
	Name  string
	Index int
	Axis  int
	Dims  tensor.Shape // one element for each lane, except for a constant
	DType tensor.DType
	// Value holds the bytes of a lane for false and true; a constant has one.
	Value [2][]byte
	// Length counts in Plan.Lengths; plus is added to what is counted.
	Length     int
	Plus       int64
	LengthAxis int   // of positions only: the axis along which they go on
	Mask       *Mask // of a mask only
	statebuffer.Layout
}

// Length is an input or an output whose extent at an axis is summed up per
// sequence.
type Length struct {
	Name     string
	Axis     int  // of the model's tensor
	Index    int  // position in the signature
	IsOutput bool // at counts in its outputs
	Input    int  // position in Plan.Inputs, unless it is an output
}

// Mask is what a mask tells of: for each lane 0 where the states are padding,
// and 1 for what is theirs and for this step's part of an input, if one is named.
type Mask struct {
	States string // their name, which may be a pattern
	Axis   int    // of the mask's own length
	Covers []int  // positions of the states in Plan.Varying
	Length int    // position in Plan.Lengths, or -1
}

// String is the kind in the load report.
func (k Kind) String() string { return kindNames[k] }

// Flag returns the bytes of a lane for false or true.
func (f *Generated) Flag(on bool) []byte {
	if on {
		return f.Value[1]
	}
	return f.Value[0]
}
