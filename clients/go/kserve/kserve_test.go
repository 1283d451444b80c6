package kserve

import (
	"encoding/hex"
	"testing"

	"google.golang.org/protobuf/proto"
)

// TestRequestIsWhatThePythonClientSends holds a request against one that the generated classes of the official Python
// client (tritonclient 2.73, service_pb2) serialised, deterministically.
func TestRequestIsWhatThePythonClientSends(t *testing.T) {
	const golden = "0a0f616363756d756c6174655f667033321a02313722120a0c73657175656e63655f656e641202080022120a0b7365717565" +
		"6e63655f6964120310ac0222140a0e73657175656e63655f7374617274120208012a140a05496e7075741204465033321a05010201ac" +
		"022a100a044d61736b1204424f4f4c1a02010232080a064f757470757432070a0553746174653a04010203043a020100"
	request := NewRequest("accumulate_fp32", "17", []Tensor{
		{Name: "Input", Datatype: "FP32", Shape: []int64{1, 2, 1, 300}, Data: []byte{1, 2, 3, 4}},
		{Name: "Mask", Datatype: "BOOL", Shape: []int64{1, 2}, Data: []byte{1, 0}},
	}, "Output", "State")
	request.SetStep(SequenceID{Text: "another step"}, false, true) // leaves nothing
	request.SetStep(SequenceID{Number: 300}, true, false)
	sent, err := proto.MarshalOptions{Deterministic: true}.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(sent); got != golden {
		t.Errorf("encoded\n%s, want\n%s", got, golden)
	}
}

func TestOutput(t *testing.T) {
	const golden = "12780a0f616363756d756c6174655f667033321201311a02313722120a0573636f7265120921000000000000e03f221b0a1574" +
		"7269746f6e5f66696e616c5f726573706f6e7365120208012a120a064f75747075741204465033321a0201012a110a05537461746512" +
		"04465033321a0201013204090807063200"
	message, err := hex.DecodeString(golden)
	if err != nil {
		t.Fatal(err)
	}
	var response ModelStreamInferResponse
	if err := proto.Unmarshal(message, &response); err != nil {
		t.Fatal(err)
	}
	if data, found := response.Output("Output"); !found || string(data) != "\x09\x08\x07\x06" {
		t.Errorf("Output is %v, %v; want its 4 bytes", data, found)
	}
	if _, found := response.Output("Score"); found {
		t.Error("found an output that is not in the answer")
	}
}
