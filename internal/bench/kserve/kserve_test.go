package kserve

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// The golden messages were serialised once, deterministically, by the official Python client's generated classes
// (tritonclient 2.73, service_pb2).
const (
	goldenFirst = "0a0f616363756d756c6174655f667033321a02313722120a0c73657175656e63655f656e641202080022120a0b7365717565" +
		"6e63655f6964120310ac0222140a0e73657175656e63655f7374617274120208012a140a05496e7075741204465033321a05010201ac" +
		"022a100a044d61736b1204424f4f4c1a02010232080a064f757470757432070a0553746174653a04010203043a020100"
	goldenLast = "0a0f616363756d756c6174655f667033321a02313722120a0c73657175656e63655f656e6412020801221b0a0b73657175656e" +
		"63655f6964120c1a0a73657175656e63652d3922140a0e73657175656e63655f7374617274120208002a140a05496e707574120446503" +
		"3321a05010201ac022a100a044d61736b1204424f4f4c1a0201023a04010203043a020100"
	goldenAnswer = "12780a0f616363756d756c6174655f667033321201311a02313722120a0573636f7265120921000000000000e03f221b0a1574" +
		"7269746f6e5f66696e616c5f726573706f6e7365120208012a120a064f75747075741204465033321a0201012a110a05537461746512" +
		"04465033321a0201013204090807063200"
	goldenError      = "0a106e6f20737563682073657175656e636512041a023137"
	goldenStatistics = "0a570a0f616363756d756c6174655f66703332120131180520402804322a0a05083c10e8071205083d10d00f1a05083e" +
		"10b8172205083f10a01f2a0508401088273205084110f02e3a0608031a02100742070a0343505518050a630a0f616363756d756c6174" +
		"655f667033321201321805208005282832350a0608d80410904e120708d90410a09c011a0708da0410b0ea01220708db0410c0b8022a" +
		"0708dc0410d08603320708dd0410e0d4033a0608031a02100742070a034350551805"
	goldenStatisticsRequest = "0a0f616363756d756c6174655f66703332"
)

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	message, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return message
}

// sorted puts a message's top-level fields into the order of their numbers, as the generated classes write them.
func sorted(t *testing.T, message []byte) []byte {
	t.Helper()
	type raw struct {
		number protowire.Number
		bytes  []byte
	}
	var fields []raw
	for len(message) > 0 {
		number, _, n := protowire.ConsumeField(message)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		fields = append(fields, raw{number, message[:n]})
		message = message[n:]
	}
	slices.SortStableFunc(fields, func(a, b raw) int { return cmp.Compare(a.number, b.number) })
	var result []byte
	for _, field := range fields {
		result = append(result, field.bytes...)
	}
	return result
}

func exampleCall(outputs ...string) Call {
	return Call{
		Model: "accumulate_fp32",
		ID:    "17",
		Inputs: []Tensor{
			{Name: "Input", Datatype: "FP32", Shape: []int64{1, 2, 1, 300}, Data: []byte{1, 2, 3, 4}},
			{Name: "Mask", Datatype: "BOOL", Shape: []int64{1, 2}, Data: []byte{1, 0}},
		},
		Outputs: outputs,
	}
}

func TestRequestIsWhatThePythonClientSends(t *testing.T) {
	tests := map[string]struct {
		call   Call
		id     SequenceID
		flags  Flags
		golden string
	}{
		"first step": {exampleCall("Output", "State"), SequenceID{Number: 300}, Start, goldenFirst},
		"last step":  {exampleCall(), SequenceID{Text: "sequence-9"}, End, goldenLast},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			request := NewRequest(test.call)
			request.SetStep(SequenceID{Text: "another step, with a longer text"}, Start|End) // leaves nothing behind
			request.SetStep(test.id, test.flags)
			if got, want := sorted(t, request.Wire()), unhex(t, test.golden); !bytes.Equal(got, want) {
				t.Errorf("encoded\n%x, want\n%x", got, want)
			}
		})
	}
}

func TestRequestInputIsPartOfTheMessage(t *testing.T) {
	request := NewRequest(exampleCall())
	copy(request.Input(0), "ABCD")
	copy(request.Input(1), "EF")
	request.SetStep(SequenceID{Number: 1}, 0)

	var raw []string
	err := eachField(request.Wire(), func(number protowire.Number, value field) error {
		if number == requestRawInputs {
			raw = append(raw, string(value.Bytes))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(raw, " "); got != "ABCD EF" {
		t.Errorf("the message holds the inputs %q, want the bytes written to them", got)
	}
}

func TestStepsAllocateNothing(t *testing.T) {
	request := NewRequest(exampleCall())
	request.SetStep(SequenceID{Text: "the longest text"}, Start)
	var response Response
	answer := mem.BufferSlice{mem.SliceBuffer(unhex(t, goldenAnswer))}
	step := func() {
		request.SetStep(SequenceID{Number: 1 << 60}, End)
		request.SetStep(SequenceID{Text: "a text"}, End)
		if err := (Codec{}).Unmarshal(answer, &response); err != nil {
			t.Fatal(err)
		}
	}
	if allocations := testing.AllocsPerRun(100, step); allocations != 0 {
		t.Errorf("a step makes %v allocations, want none", allocations)
	}
}

func TestResponse(t *testing.T) {
	var response Response
	if err := response.Parse(unhex(t, goldenAnswer)); err != nil {
		t.Fatal(err)
	}
	if string(response.ID) != "17" || len(response.Error) != 0 || len(response.Outputs) != 2 {
		t.Errorf("parsed %+v, want the answer to request 17 with two outputs", response)
	}
	if data, found := response.Output("Output"); !found || !bytes.Equal(data, []byte{9, 8, 7, 6}) {
		t.Errorf("Output is %v, %v; want its 4 bytes", data, found)
	}
	if data, found := response.Output("State"); !found || len(data) != 0 {
		t.Errorf("State is %v, %v; want no bytes", data, found)
	}

	if err := response.Parse(unhex(t, goldenError)); err != nil {
		t.Fatal(err)
	}
	if string(response.Error) != "no such sequence" || string(response.ID) != "17" || len(response.Outputs) != 0 {
		t.Errorf("parsed %+v, want only the error of request 17", response)
	}
	if _, found := response.Output("Output"); found {
		t.Error("an error answer still has the outputs of the answer before it")
	}
}

func TestStatisticsSumOverVersions(t *testing.T) {
	var statistics Statistics
	if err := statistics.Parse(unhex(t, goldenStatistics)); err != nil {
		t.Fatal(err)
	}
	const µs = time.Microsecond
	want := Statistics{
		Inferences: 704, Executions: 44, Successes: 660,
		Queue: 33 * µs, ComputeInput: 44 * µs, ComputeInfer: 55 * µs, ComputeOutput: 66 * µs,
	}
	if statistics != want {
		t.Errorf("parsed %+v, want %+v", statistics, want)
	}
	if got := statistics.MeanBatch(); got != 16 {
		t.Errorf("mean batch %v, want 704/44", got)
	}
	added := want.Since(Statistics{Inferences: 4, Executions: 44, Queue: 3 * µs})
	if added.Inferences != 700 || added.Queue != 30*µs || added.MeanBatch() != 0 {
		t.Errorf("since an earlier reading: %+v", added)
	}
}

func TestStatisticsRequest(t *testing.T) {
	got := StatisticsRequest{Model: "accumulate_fp32"}.Wire()
	if want := unhex(t, goldenStatisticsRequest); !bytes.Equal(got, want) {
		t.Errorf("encoded %x, want %x", got, want)
	}
}

func TestCodecRefusesForeignMessages(t *testing.T) {
	if _, err := (Codec{}).Marshal("text"); err == nil {
		t.Error("Marshal took a string")
	}
	if err := (Codec{}).Unmarshal(nil, "text"); err == nil {
		t.Error("Unmarshal took a string")
	}
}

func FuzzParse(f *testing.F) {
	for _, golden := range []string{goldenAnswer, goldenError, goldenStatistics} {
		message, err := hex.DecodeString(golden)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(message)
	}
	f.Fuzz(func(_ *testing.T, message []byte) { // must not panic, whatever it says
		_ = new(Response).Parse(message)
		_ = new(Statistics).Parse(message)
	})
}
