package backend

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/tensor"
)

// TestLargeInputsAreGivenBack: one large request does not hold its memory for ever, be
// it numbers, strings or a correlation ID; and what all requests need stays where it is.
func TestLargeInputsAreGivenBack(t *testing.T) {
	t.Parallel()
	const large = 4 << 20
	idModel := func() (*scripted, *config.Config) {
		m, c := sumModel(), sumConfig()
		m.sig.Inputs = append(m.sig.Inputs, info("ID", tensor.Bytes, -1, 1))
		c.Sequence.ControlInputs = []config.ControlConfig{{Name: "ID", Controls: []config.Control{{Kind: config.ControlCorrID, DataType: "TYPE_STRING"}}}}
		return m, c
	}
	for name, tt := range map[string]struct {
		load    func() (*scripted, *config.Config)
		request func(size int) Request
	}{
		"numbers": {
			load: func() (*scripted, *config.Config) {
				m, c := copyModel(tensor.Shape{-1, -1}, []string{"batch", "time"}, []string{"batch", "time"})
				c.Inputs[0].Dims, c.Outputs[0].Dims = tensor.Shape{-1}, tensor.Shape{-1}
				return m, c
			},
			request: func(size int) Request {
				return Request{Inputs: intInput(tensor.Shape{1, int64(size / 4)}, make([]int32, size/4)...)}
			},
		},
		"strings": {
			load: echoModel,
			request: func(size int) Request {
				data := stringTensor(strings.Repeat("a", size), "")
				return Request{Sequence: SequenceID{Number: 1}, Start: true, End: true, Inputs: []Input{{Present: true, DType: tensor.Bytes, Shape: tensor.Shape{1, 2}, Data: data}}}
			},
		},
		"correlation IDs": {
			load: idModel,
			request: func(size int) Request {
				return Request{Sequence: SequenceID{Text: strings.Repeat("a", size)}, Start: true, End: true, Inputs: intInput(tensor.Shape{1, 2}, 1, 2)}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			model, c := tt.load()
			in := model.loaded(t, c)
			run := func(times, size int) {
				t.Helper()
				for range times {
					succeed(t, in, tt.request(size))
				}
			}
			run(3, 1000)
			before := model.memory.Used()
			run(1, large)
			require.GreaterOrEqual(t, model.memory.Used(), int64(large))
			run(130, 1000)
			require.LessOrEqual(t, model.memory.Used(), before)
			run(1, large)
			used := model.memory.Used()
			for range 20 { // what is needed now and then stays
				run(30, 1000)
				run(1, large)
				require.Equal(t, used, model.memory.Used())
			}
		})
	}
}
