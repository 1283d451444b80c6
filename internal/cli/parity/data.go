package parity

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"tritonstateful/backend/plan"
	"tritonstateful/backend/plan/planner"
	"tritonstateful/internal/tensor"
)

// recording is what an input gets from a file: one long row of elements, which requests take piece by piece. Each sequence
// begins somewhere else, so that no two are the same, and goes on at the beginning after the end.
type recording struct {
	data []byte
	size int // of an element
}

// piece is what a step of a sequence brings: n elements.
func (r *recording) piece(lane, step, n int) ([]byte, error) {
	total := len(r.data) / r.size
	if total < n {
		return nil, fmt.Errorf("the file has %d elements, and a request needs %d", total, n)
	}
	pieces := total / n
	at := ((step + lane*7) % pieces) * n
	return r.data[at*r.size : (at+n)*r.size], nil
}

// readData reads FILE or INPUT=FILE, a .npy or a .wav file. Without an input it is for the first one of fractions.
func readData(text string, pl *plan.Plan) (input int, r *recording, err error) {
	name, path, named := strings.Cut(text, "=")
	if !named {
		name, path = "", text
	}
	input = -1
	for i := range pl.Inputs {
		if named && pl.Inputs[i].Name == name || !named && input < 0 && isFraction(pl.Inputs[i].DType) {
			input = i
		}
	}
	if input < 0 {
		return 0, nil, fmt.Errorf("data %q: the model has no such input: want FILE or INPUT=FILE", text)
	}
	dtype := pl.Inputs[input].DType
	file, err := os.ReadFile(path)
	if err != nil {
		return 0, nil, err
	}
	var data []byte
	switch ext := strings.ToLower(filepath.Ext(path)); ext {
	case ".npy":
		var given tensor.DType
		if given, _, data, err = planner.ParseNPY(file); err == nil && given != dtype {
			err = fmt.Errorf("it holds %v: want %v, the type of input %q", given, dtype, pl.Inputs[input].Name)
		}
	case ".wav":
		data, err = wav(file, dtype)
	default:
		err = fmt.Errorf("want a .npy or a .wav file")
	}
	if err != nil {
		return 0, nil, fmt.Errorf("%s: %w", path, err)
	}
	if dtype.Size() == 0 || len(data) == 0 {
		return 0, nil, fmt.Errorf("%s: it has no elements for input %q of type %v", path, pl.Inputs[input].Name, dtype)
	}
	return input, &recording{data, dtype.Size()}, nil
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
				case isFraction(to):
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
