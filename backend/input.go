package backend

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"

	"tritonstateful/backend/plan"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

// stringOffsets finds where each lane begins in a tensor of strings whose batch
// is outermost, and where the last one ends. Each string is preceded by its
// length.
func stringOffsets(data []byte, lane tensor.Shape, lanes int) ([]int64, error) {
	elements, err := lane.Elements()
	if err != nil {
		return nil, err
	}
	offsets := make([]int64, 1, lanes+1)
	end := int64(0)
	for range lanes {
		for range elements {
			if int64(len(data))-end < 4 {
				return nil, fmt.Errorf("a tensor of strings ends within a length")
			}
			end += 4 + int64(binary.NativeEndian.Uint32(data[end:]))
			if end > int64(len(data)) {
				return nil, fmt.Errorf("a tensor of strings ends within a string")
			}
		}
		offsets = append(offsets, end)
	}
	return offsets, nil
}

// stringsEnd is where a number of strings end that are known to be there.
func stringsEnd(data []byte, elements int64) (end int64) {
	for range elements {
		end += 4 + int64(binary.NativeEndian.Uint32(data[end:]))
	}
	return end
}

// checkInput says why a request's tensor is not what the model takes, for a request
// of that many lanes.
func checkInput(p *plan.IO, input *Input, lanes int64) error {
	switch {
	case !input.Present && p.Optional:
		return nil
	case !input.Present:
		return status.Errorf(status.InvalidArg, "input %q is missing", p.Name)
	case input.DType != p.DType:
		return status.Errorf(status.InvalidArg, "input %q is of type %v: want %v", p.Name, input.DType, p.DType)
	case !takesShape(p, input.Shape, lanes):
		return status.Errorf(status.InvalidArg, "input %q has shape %v: want %v, with %d in front for the batch of the request (which is 1 for a sequence)", p.Name, input.Shape, p.Request, lanes)
	case p.EndsOnEmpty != "" && slices.Contains(input.Shape, 0):
		return status.Errorf(status.InvalidArg, "input %q has shape %v: want no extent of 0, because ONNX Runtime's operator %s crashes on it", p.Name, input.Shape, p.EndsOnEmpty)
	}
	if input.Device != 0 && (p.Axis == tensor.NoAxis || p.DType == tensor.Bytes) {
		return status.Errorf(status.Unsupported, "input %q is in GPU memory, and has no batch axis, so requests are compared on the host: send it in CPU memory", p.Name)
	}
	want := lanes * p.LaneBytes()
	if p.DType == tensor.Bytes {
		if p.Axis == tensor.NoAxis && lanes > 1 {
			return status.Errorf(status.InvalidArg, "input %q has a batch of %d: want 1, because it has no batch axis in the model", p.Name, lanes)
		}
		elements, err := input.Shape.Elements()
		if err != nil {
			return status.Errorf(status.InvalidArg, "input %q: %w", p.Name, err)
		}
		offsets, err := stringOffsets(input.Data, tensor.Shape{elements}, 1)
		if err != nil {
			return status.Errorf(status.InvalidArg, "input %q: %w", p.Name, err)
		}
		if extra := int64(len(input.Data)) - offsets[1]; extra != 0 { // it would shift the next lane's
			return status.Errorf(status.InvalidArg, "input %q has %d bytes after the last of its %d strings", p.Name, extra, elements)
		}
		return nil
	}
	if p.Varies {
		var err error
		if want, err = input.Shape.Bytes(p.DType); err != nil {
			return status.Errorf(status.InvalidArg, "input %q: %w", p.Name, err)
		}
	}
	if input.bytes() != want {
		return status.Errorf(status.InvalidArg, "input %q has %d bytes: want %d for shape %v of %v", p.Name, input.bytes(), want, input.Shape, p.DType)
	}
	if size := len(sharedContent(p, input)); p.Axis == tensor.NoAxis && !bytes.Equal(input.Data[size:], input.Data[:len(input.Data)-size]) {
		return status.Errorf(status.InvalidArg, "input %q differs within the batch of the request: want equal values, because it has no batch axis in the model", p.Name)
	}
	return nil
}

// sharedContent is the content of an input without a batch axis: that of the first element
// of the request's batch, and of all others.
func sharedContent(p *plan.IO, input *Input) []byte {
	if !p.BatchInFront || p.DType == tensor.Bytes || input.Shape[0] < 2 {
		return input.Data
	}
	return input.Data[:len(input.Data)/int(input.Shape[0])]
}

// takesShape reports whether a request of that many lanes may have this shape.
func takesShape(p *plan.IO, shape tensor.Shape, lanes int64) bool {
	if len(shape) != len(p.Request) {
		return false
	}
	for i, want := range p.Request {
		if i == 0 && want == 1 && lanes != 1 {
			want = lanes
		}
		if want >= 0 && shape[i] != want {
			return false
		}
	}
	return true
}

// sameInput reports whether two requests can share a run, as far as this input goes:
// its shape must be the same where it is open, and so must its content where the
// model takes it once for all lanes.
func sameInput(p *plan.IO, a, b *Input) bool {
	if a.Present != b.Present {
		return false
	}
	if p.Axis == tensor.NoAxis && a.Present && !bytes.Equal(sharedContent(p, a), sharedContent(p, b)) {
		return false
	}
	if !p.Varies {
		return true
	}
	skip := batchAxes(p)
	return len(a.Shape) == len(b.Shape) && len(a.Shape) >= skip && a.Shape[skip:].Equal(b.Shape[skip:])
}

// batchAxes is how many axes of a request come before those of a lane: 1 for its batch, or 0.
func batchAxes(p *plan.IO) int { return index(p.BatchInFront || len(p.Request) > len(p.Dims)) }

// modelDims are the extents of the model's tensor for a request of that shape.
func modelDims(p *plan.IO, request tensor.Shape) tensor.Shape {
	dims := p.Dims.Clone()
	lane := request
	if len(request) == len(p.Request) && len(p.Request) > len(p.Dims.Without(p.Axis)) {
		lane = request[1:] // the batch that Triton puts in front
	}
	next := 0
	for i := range dims {
		if i == p.Axis && len(lane) == len(dims)-1 {
			continue
		}
		if i != p.Axis {
			dims[i] = lane[next]
		}
		next++
	}
	return dims
}

// hashInput adds to a hash what sameInput compares.
func hashInput(p *plan.IO, h *maphash.Hash, input *Input) {
	maphash.WriteComparable(h, input.Present)
	if !input.Present || len(input.Shape) == 0 {
		return
	}
	if p.Axis == tensor.NoAxis {
		h.Write(sharedContent(p, input))
	}
	if p.Varies {
		for _, extent := range input.Shape[batchAxes(p):] {
			maphash.WriteComparable(h, extent)
		}
	}
}
