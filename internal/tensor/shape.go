package tensor

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// Dynamic is the extent of an axis whose length is not fixed.
const Dynamic int64 = -1

// NoAxis is the index of an axis that a tensor lacks, such as the batch axis of a tensor
// that is the same for all requests.
const NoAxis = -1

// Shape is the extent of each axis, outermost first. An empty Shape is a
// scalar. A negative extent is not fixed ([Dynamic]).
type Shape []int64

// Elements returns the product of all extents, 1 for a scalar. It fails if an
// extent is not fixed or the product does not fit in 63 bits.
func (s Shape) Elements() (int64, error) {
	n := int64(1)
	for _, d := range s {
		if d < 0 {
			return 0, fmt.Errorf("shape %v has an extent that is not fixed", s)
		}
		hi, lo := bits.Mul64(uint64(n), uint64(d))
		if hi != 0 || lo > math.MaxInt64 {
			return 0, fmt.Errorf("shape %v has more elements than 63 bits can count", s)
		}
		n = int64(lo)
	}
	return n, nil
}

// Bytes returns the size of a tensor with this shape in bytes. It fails as Elements
// does, and for a type whose elements have no fixed size.
func (s Shape) Bytes(dtype DType) (int64, error) {
	n, err := s.Elements()
	if err != nil {
		return 0, err
	}
	size := int64(dtype.Size())
	if size == 0 {
		return 0, fmt.Errorf("elements of type %v have no fixed size", dtype)
	}
	if n > math.MaxInt64/size {
		return 0, fmt.Errorf("shape %v of %v has more bytes than 63 bits can count", s, dtype)
	}
	return n * size, nil
}

// Fixed reports whether every extent is known.
func (s Shape) Fixed() bool {
	return !slices.ContainsFunc(s, func(d int64) bool { return d < 0 })
}

// Equal reports whether both have the same extents.
func (s Shape) Equal(t Shape) bool { return slices.Equal(s, t) }

// Clone returns a copy that shares no memory with s.
func (s Shape) Clone() Shape { return slices.Clone(s) }

// With returns a copy of s in which the given axis has another extent. A negative axis
// is none: the copy equals s. So s.With(batchAxis, n) is the shape of n lanes, also
// of a tensor without a batch axis.
func (s Shape) With(axis int, extent int64) Shape {
	t := s.Clone()
	if axis >= 0 {
		t[axis] = extent
	}
	return t
}

// Without returns a copy of s without the given axis. A negative axis is none, as
// for With.
func (s Shape) Without(axis int) Shape {
	t := s.Clone()
	if axis >= 0 {
		t = slices.Delete(t, axis, axis+1)
	}
	return t
}

// String returns the form of a configuration, such as "[4,-1,5]".
func (s Shape) String() string {
	var b strings.Builder
	b.WriteByte('[')
	for i, d := range s {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(d, 10))
	}
	b.WriteByte(']')
	return b.String()
}

// UnmarshalJSON reads a list of extents, numbers or strings: Triton's JSON has
// 64-bit numbers as strings in most places.
func (s *Shape) UnmarshalJSON(text []byte) error {
	var numbers []json.Number
	if err := json.Unmarshal(text, &numbers); err != nil {
		return err
	}
	*s = make(Shape, len(numbers))
	for i, n := range numbers {
		d, err := n.Int64()
		if err != nil {
			return err
		}
		(*s)[i] = d
	}
	return nil
}
