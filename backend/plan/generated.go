package plan

import (
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// Generated is an input of the model that the backend writes itself.
type Generated struct {
	Kind  Kind
	Name  string
	Index int // position in the signature
	Axis  int // batch axis, or tensor.NoAxis: one value for all lanes of a run
	// AxisFrom says in words how the axis was found, for people.
	AxisFrom string
	DType    tensor.DType
	// Dims are 1 but for constants, masks and positions: one element for each lane. A
	// mask and positions have tensor.Dynamic at the axis of their length.
	Dims tensor.Shape
	// Value has the bytes of a lane for false and true, of a mask those of an element; a
	// constant has only the first.
	Value [2][]byte
	// Length is the position in Plan.Lengths of what is counted; Plus is added to it.
	Length int
	Plus   int64
	// LengthAxis is the axis along which positions go on.
	LengthAxis int
	Mask       *Mask // nil for all other kinds
	// Layout of a lane, where its size is known.
	statebuffer.Layout
}

// Flag returns the bytes of a lane for false or true.
func (g *Generated) Flag(on bool) []byte {
	if on {
		return g.Value[1]
	}
	return g.Value[0]
}

// Kind is what the backend writes into an input of the model.
type Kind uint8

// The kinds of generated inputs.
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
	KindPositions                // where in the sequence each element of an input is
)

var kindNames = map[Kind]string{
	KindStart: "start", KindEnd: "end", KindReady: "ready", KindID: "correlation ID",
	KindConstant: "constant", KindSteps: "steps", KindLengthBefore: "length before", KindLengthAfter: "length after", KindMask: "mask",
	KindPositions: "positions",
}

// String is the kind in the load report.
func (k Kind) String() string { return kindNames[k] }

// Length is an input or an output whose extent at an axis is summed up for each sequence.
type Length struct {
	Name     string
	Axis     int  // of the model's tensor
	Index    int  // position in the signature
	IsOutput bool // Index counts in its outputs
	Input    int  // position in Plan.Inputs, unless it is an output
}

// Mask says which elements of padded states count: for each lane 0 where the states are
// padding, and 1 for their own elements and for those of this step's part of an input, if
// one is named.
type Mask struct {
	States string // the name of the states, which may be a pattern
	Axis   int    // along which the mask goes on
	Covers []int  // positions of the states in Plan.Varying
	Length int    // position in Plan.Lengths of the input, or -1
}
