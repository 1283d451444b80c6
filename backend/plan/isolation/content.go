package isolation

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	"tritonstateful/backend/plan"
	"tritonstateful/internal/tensor"
)

// setting is how a run is made. Which of them a model takes has to be tried.
type setting struct {
	extent   int64 // of open axes that are not the batch
	states   stateExtent
	contents contents
}

// stateExtent is how long the open axes of states are.
type stateExtent uint8

const (
	statesAlike stateExtent = iota // as those of inputs
	statesBegin                    // as when a sequence begins
	statesOne                      // 1
)

// contents is what an input holds that the backend does not write.
type contents uint8

const (
	random   contents = iota // fractions between 0.5 and 1; integers from 1 to 3
	zeroOne                  // the same; integers 0 and 1
	integers                 // 1, 2 and 3 in all types
	ones                     // integers that are all 1, so that they tell no lanes apart
	zeros                    // the same with 0
)

// lane is what one lane has of each input, in the order of Trial.inputs. Inputs
// without lanes have the same in all.
type lane [][]byte

// elementsMost bounds the elements of an input in a trial.
const elementsMost = 1 << 24

// newLane makes contents; scale is what fractions are multiplied by. shared is a lane
// that has what is the same for all; nil makes that, too.
func (t *Trial) newLane(s setting, scale float64, shared lane) (l lane, ok bool) {
	if s.states == statesBegin && !t.MayBegin {
		return nil, false
	}
	l = make(lane, len(t.inputs))
	for i := range t.inputs {
		in := &t.inputs[i]
		if shared != nil && !t.laned(in) {
			l[i] = shared[i]
			continue
		}
		elements, err := t.shape(in, s).Elements()
		if err != nil || elements > elementsMost {
			return nil, false
		}
		if l[i], ok = t.content(in, s, scale, int(elements)); !ok {
			return nil, false
		}
	}
	return l, true
}

// content is that many elements of an input.
func (t *Trial) content(in *trialInput, s setting, scale float64, n int) ([]byte, bool) {
	if f := in.generated; f != nil && f.DType != tensor.Bytes {
		return t.generated(f, s, n)
	}
	to := make([]byte, 0, n*max(in.dtype.Size(), 1))
	for range n {
		switch in.dtype {
		case tensor.FP16, tensor.FP32, tensor.FP64, tensor.BF16:
			value := scale * (0.5 + t.rng.Float64()/2)
			switch {
			case in.mask:
				value = float64(t.seen())
			case s.contents == integers:
				value = float64(1 + t.rng.IntN(3))
			case t.vary:
				value = t.variedFraction(value)
			}
			to = tensor.AppendFloat(to, value, in.dtype)
		case tensor.Bytes:
			text := strconv.FormatInt(t.integer(in, s), 10)
			to = binary.NativeEndian.AppendUint32(to, uint32(len(text)))
			to = append(to, text...)
		case tensor.Bool:
			value := byte(t.rng.IntN(2))
			switch {
			case in.mask:
				value = byte(t.seen())
			case s.contents == ones:
				value = 1
			case s.contents == zeros:
				value = 0
			}
			to = append(to, value)
		case tensor.Invalid:
			return nil, false
		default:
			size := in.dtype.Size()
			to = binary.LittleEndian.AppendUint64(to, uint64(t.integer(in, s)))
			to = to[:len(to)-8+size]
		}
	}
	return to, true
}

// integer is one element of an input of integers or of strings.
func (t *Trial) integer(in *trialInput, s setting) int64 {
	switch {
	case in.mask:
		return t.seen()
	case s.contents == ones:
		return 1
	case in.length && s.contents != zeros:
		return max(s.extent-int64(t.rng.IntN(2)), 1)
	case s.contents == zeroOne:
		return int64(t.rng.IntN(2))
	case s.contents == zeros:
		return 0
	case t.vary && t.belowZero(in):
		return int64(t.rng.IntN(7) - 3)
	default:
		return int64(1 + t.rng.IntN(3))
	}
}

// belowZero reports whether an input of integers may hold numbers below 0: not where its
// name says that it counts or points at something, which kernels may use unchecked.
func (t *Trial) belowZero(in *trialInput) bool {
	switch in.dtype {
	case tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64:
	default:
		return false
	}
	name := strings.ToLower(t.sig.Inputs[in.index].Name)
	return in.begin == nil && !in.length && !slices.ContainsFunc([]string{"id", "pos", "index", "indices", "offset", "num", "count", "size", "step", "token"}, func(word string) bool {
		return strings.Contains(name, word)
	})
}

// generated is what the backend would write: at the start of a sequence if the states
// are those, else later.
func (t *Trial) generated(f *plan.Generated, s setting, n int) ([]byte, bool) {
	begins := s.states == statesBegin
	var value []byte
	switch f.Kind {
	case plan.KindStart:
		value = f.Flag(begins)
	case plan.KindReady, plan.KindMask:
		value = f.Value[1]
	case plan.KindEnd, plan.KindConstant:
		value = f.Value[0]
	default:
		value = make([]byte, f.DType.Size())
		if f.Kind != plan.KindID && !begins {
			tensor.PutInt(value, f.DType, f.Plus+s.extent)
		}
	}
	if t.vary {
		if own := t.variedGenerated(f, s); own != nil {
			value = own
		}
	}
	size := n * f.DType.Size()
	if len(value) == 0 || size%len(value) != 0 {
		return nil, false
	}
	return bytes.Repeat(value, size/len(value)), true
}
