package planner

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"tritonstateful/internal/tensor"
)

// npyMagic begins every .npy file (NumPy Enhancement Proposal 1).
const npyMagic = "\x93NUMPY"

// npyTypes are the array types that have a tensor type, as NumPy writes them on a
// little-endian machine.
var npyTypes = map[string]tensor.DType{
	"|b1": tensor.Bool, "|u1": tensor.Uint8, "<u2": tensor.Uint16, "<u4": tensor.Uint32, "<u8": tensor.Uint64,
	"|i1": tensor.Int8, "<i2": tensor.Int16, "<i4": tensor.Int32, "<i8": tensor.Int64,
	"<f2": tensor.FP16, "<f4": tensor.FP32, "<f8": tensor.FP64,
}

var (
	npyDescr   = regexp.MustCompile(`'descr':\s*'([^']*)'`)
	npyFortran = regexp.MustCompile(`'fortran_order':\s*(True|False)`)
	npyShape   = regexp.MustCompile(`'shape':\s*\(([0-9, ]*)\)`)
)

// ParseNPY reads an array file of NumPy, as initial_states takes them. The data is a part of file.
func ParseNPY(file []byte) (dtype tensor.DType, shape tensor.Shape, data []byte, err error) {
	header, data, err := splitNPY(file)
	if err != nil {
		return 0, nil, nil, err
	}
	descr, fortran, extents := npyDescr.FindStringSubmatch(header), npyFortran.FindStringSubmatch(header), npyShape.FindStringSubmatch(header)
	if descr == nil || fortran == nil || extents == nil {
		return 0, nil, nil, fmt.Errorf("its .npy header %q lacks descr, fortran_order or shape", header)
	}
	dtype, ok := npyTypes[descr[1]]
	if !ok {
		return 0, nil, nil, fmt.Errorf("its .npy type %q has no tensor type", descr[1])
	}
	shape = tensor.Shape{}
	for field := range strings.SplitSeq(extents[1], ",") {
		if field = strings.TrimSpace(field); field == "" {
			continue
		}
		n, err := strconv.ParseInt(field, 10, 63)
		if err != nil {
			return 0, nil, nil, fmt.Errorf("its .npy shape (%s): %w", extents[1], err)
		}
		shape = append(shape, n)
	}
	if fortran[1] == "True" && len(shape) > 1 {
		return 0, nil, nil, fmt.Errorf("its .npy data is in Fortran order: save it with numpy.ascontiguousarray")
	}
	want, err := shape.Bytes(dtype)
	if err != nil {
		return 0, nil, nil, err
	}
	if int64(len(data)) != want {
		return 0, nil, nil, fmt.Errorf("it has %d bytes after its .npy header: want %d for shape %v of %v", len(data), want, shape, dtype)
	}
	return dtype, shape, data, nil
}

// splitNPY finds the header's dictionary and the data.
func splitNPY(file []byte) (header string, data []byte, err error) {
	rest, ok := bytes.CutPrefix(file, []byte(npyMagic))
	if !ok || len(rest) < 4 {
		return "", nil, fmt.Errorf("it is not a .npy file")
	}
	major, rest := rest[0], rest[2:]
	var size uint64
	switch {
	case major == 1:
		size, rest = uint64(binary.LittleEndian.Uint16(rest)), rest[2:]
	case (major == 2 || major == 3) && len(rest) >= 4:
		size, rest = uint64(binary.LittleEndian.Uint32(rest)), rest[4:]
	default:
		return "", nil, fmt.Errorf("its .npy version %d is unknown", major)
	}
	if size > uint64(len(rest)) {
		return "", nil, fmt.Errorf("its .npy header is cut off")
	}
	return string(rest[:size]), rest[size:], nil
}
