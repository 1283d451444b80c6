// Package recording reads what inputs of a model get from a file: sound (.wav) or numbers (.npy).
package recording

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"tritonstateful/backend/plan/planner"
	"tritonstateful/internal/tensor"
)

// A Recording is what an input gets from a file: one long row of elements, which requests take piece by piece. Each sequence
// begins somewhere else, so that no two are the same, and goes on at the beginning after the end.
type Recording struct {
	data []byte
	size int // of an element
}

// ErrShort is about a file that is not enough for one request.
var ErrShort = errors.New("the file is too short")

// Piece returns what a step of a sequence brings: n elements.
func (r *Recording) Piece(lane, step, n int) ([]byte, error) {
	total := len(r.data) / r.size
	if total < n {
		return nil, fmt.Errorf("%w: it has %d elements, and a request needs %d", ErrShort, total, n)
	}
	pieces := total / n
	at := ((step + lane*7) % pieces) * n
	return r.data[at*r.size : (at+n)*r.size], nil
}

// Read reads a .npy or a .wav file for an input of some type.
func Read(path string, dtype tensor.DType) (*Recording, error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var data []byte
	switch ext := strings.ToLower(filepath.Ext(path)); ext {
	case ".npy":
		var given tensor.DType
		if given, _, data, err = planner.ParseNPY(file); err == nil && given != dtype {
			err = fmt.Errorf("it holds %v: want %v, the type of the input; numpy converts with astype", given, dtype)
		}
	case ".wav":
		data, err = wav(file, dtype)
	default:
		err = fmt.Errorf("want a .npy or a .wav file")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if dtype.Size() == 0 || len(data) == 0 {
		return nil, fmt.Errorf("%s: it has no elements for an input of type %v", path, dtype)
	}
	return &Recording{data, dtype.Size()}, nil
}

// wav is the first channel of a RIFF file with PCM samples of 16 bits, as fractions between -1 and 1, or as they are for an
// input of INT16.
func wav(file []byte, to tensor.DType) (data []byte, err error) {
	if len(file) < 12 || string(file[:4]) != "RIFF" || string(file[8:12]) != "WAVE" {
		return nil, fmt.Errorf("it is not a WAVE file")
	}
	channels := 0
	for rest := file[12:]; len(rest) >= 8; {
		kind, size := string(rest[:4]), int(binary.LittleEndian.Uint32(rest[4:]))
		body := rest[8:min(8+size, len(rest))]
		switch {
		case kind == "fmt " && len(body) >= 16:
			format, bits := binary.LittleEndian.Uint16(body), binary.LittleEndian.Uint16(body[14:])
			if channels = int(binary.LittleEndian.Uint16(body[2:])); format != 1 && format != 0xfffe || bits != 16 || channels == 0 {
				return nil, fmt.Errorf("format %d with %d bits and %d channels: want PCM of 16 bits", format, bits, channels)
			}
		case kind == "data" && channels > 0:
			for at := 0; at+2*channels <= len(body); at += 2 * channels {
				sample := int16(binary.LittleEndian.Uint16(body[at:]))
				switch {
				case to == tensor.Int16:
					data = binary.NativeEndian.AppendUint16(data, uint16(sample))
				case IsFraction(to):
					data = tensor.AppendFloat(data, float64(sample)/32768, to)
				default:
					return nil, fmt.Errorf("samples cannot be elements of type %v", to)
				}
			}
			return data, nil
		}
		rest = rest[min(8+size+size%2, len(rest)):]
	}
	return nil, fmt.Errorf("it has no samples")
}

// IsFraction reports whether elements of a type are numbers with a fraction.
func IsFraction(d tensor.DType) bool {
	return d == tensor.FP16 || d == tensor.BF16 || d == tensor.FP32 || d == tensor.FP64
}
