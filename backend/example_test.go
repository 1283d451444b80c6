package backend_test

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"time"

	"tritonstateful/backend"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// sums is a loaded model: Total = Sum + X, and Total is the next Sum.
type sums struct{ heap statebuffer.Heap }

func (*sums) Signature() *onnx.Signature {
	info := func(name string) onnx.TensorInfo {
		return onnx.TensorInfo{Name: name, DType: tensor.Int32, Dims: tensor.Shape{tensor.Dynamic, 1}, Symbols: []string{"batch", ""}}
	}
	return &onnx.Signature{Inputs: []onnx.TensorInfo{info("X"), info("Sum")}, Outputs: []onnx.TensorInfo{info("Total")}}
}

func (s *sums) Memory() statebuffer.Memory { return &s.heap }

func (s *sums) Run(inputs, outputs []onnx.Tensor) (err error) {
	if total := &outputs[0]; total.Data.Size == 0 { // the proof at load leaves the memory to the runner
		total.Shape = inputs[0].Shape.Clone()
		if total.Data, err = s.heap.Alloc(inputs[0].Data.Size); err != nil {
			return err
		}
	}
	for lane := range int(inputs[0].Shape[0]) {
		x, sum := inputs[0].Data.Bytes[4*lane:], inputs[1].Data.Bytes[4*lane:]
		binary.NativeEndian.PutUint32(outputs[0].Data.Bytes[4*lane:], binary.NativeEndian.Uint32(x)+binary.NativeEndian.Uint32(sum))
	}
	return nil
}

func (*sums) Close() {}

// printed is a batch whose answers are printed.
type printed []backend.Request

func (p printed) Requests() []backend.Request { return p }

func (p printed) Answer(req int, outputs []backend.Output, lane, _ int) {
	fmt.Printf("sequence %d: %d\n", p[req].Sequence.Number, binary.NativeEndian.Uint32(outputs[0].Tensor[4*lane:]))
}

func (p printed) Fail(_ int, err error) { fmt.Println(err) }

func (printed) Reserve(int, []backend.Output, int, int) []uint64 { return nil }
func (printed) Describe(int, backend.AnswerParameters)           {}
func (printed) Hold(int) backend.Held                            { panic("no ID begins twice") }
func (printed) Park(int) func(any)                               { panic("nothing is resumed") }
func (printed) Send()                                            {}
func (printed) Finish(backend.Timing)                            {}

// The server's part, which is that of package capi: it loads a model, makes an instance and hands
// over batches.
func ExampleInstance_Execute() {
	model, err := backend.NewModel(backend.ModelInfo{Name: "sums", Config: []byte(`{
		"max_batch_size": 4,
		"input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [1]}],
		"output": [{"name": "Total", "data_type": "TYPE_INT32", "dims": [1]}],
		"sequence_batching": {"oldest": {"max_candidate_sequences": 8}},
		"parameters": {"state_pairs": {"string_value": "<<<Sum, Total>>>"}}
	}`)}, backend.Server{
		Log:   slog.New(slog.DiscardHandler),
		Clock: func() time.Duration { return 0 },
		Open:  func(onnx.SessionOptions) (onnx.Runner, error) { return &sums{}, nil },
	})
	if err != nil {
		panic(err)
	}
	instance, err := model.NewInstance(backend.InstanceInfo{Name: "sums_0", Kind: "cpu"})
	if err != nil {
		panic(err)
	}
	defer instance.Close()

	request := func(sequence uint64, start bool, x byte) backend.Request {
		return backend.Request{Sequence: backend.SequenceID{Number: sequence}, Start: start, Inputs: []backend.Input{
			{Present: true, DType: tensor.Int32, Shape: tensor.Shape{1, 1}, Data: binary.NativeEndian.AppendUint32(nil, uint32(x)), Size: 4},
		}}
	}
	instance.Execute(printed{request(7, true, 1), request(8, true, 10)})
	instance.Execute(printed{request(7, false, 2), request(8, false, 20), request(9, false, 5)})
	// Output:
	// sequence 7: 1
	// sequence 8: 10
	// sequence 9: no such sequence is known; begin it again with a START request
	// sequence 7: 3
	// sequence 8: 30
}
