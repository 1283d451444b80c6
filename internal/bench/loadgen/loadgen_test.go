package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const fakeInputs = `[{"name":"Input","datatype":"FP32","shape":[1,4,1,5]}]`

// runLoad runs the program against the fake server for a short time and returns its result.
func runLoad(t *testing.T, f *fakeServer, extra ...string) (Result, error) {
	t.Helper()
	args := append([]string{
		"-url", f.url, "-model", "fake", "-json", "-inputs", fakeInputs, "-outputs", "Output",
		"-sequences", "7", "-streams", "3", "-warmup", "20ms", "-duration", "60ms",
	}, extra...)
	var out bytes.Buffer
	failure := run(args, &out)
	var result Result
	if err := json.Unmarshal(out.Bytes(), &result); err != nil {
		t.Fatalf("result %q: %v (run: %v)", out.String(), err, failure)
	}
	return result, failure
}

func TestLoadOfCorrectServer(t *testing.T) {
	for _, ids := range []string{"-string-ids=false", "-string-ids=true"} {
		f := startFakeServer(t, 5)
		result, err := runLoad(t, f, ids, "-verify", "accumulate", "-steps", "6", "-server-pid", strconv.Itoa(os.Getpid()))
		if err != nil {
			t.Fatalf("%s: %v: %+v", ids, err, result)
		}
		total := 0
		for _, phase := range result.Phases {
			total += phase.Requests
		}
		if uint64(total) != f.requests || result.Phases["measure"].Requests == 0 {
			t.Errorf("%s: counted %d answers (%+v), the server saw %d requests", ids, total, result.Phases, f.requests)
		}
		if len(f.open) != 0 {
			t.Errorf("%s: %d sequences were never ended", ids, len(f.open))
		}
		if f.started < total/6 {
			t.Errorf("%s: %d sequences for %d requests of 6 steps", ids, f.started, total)
		}
		if result.Server.MeanBatch < 1.5 || result.Server.MeanBatch > 2.5 {
			t.Errorf("%s: mean batch %v, the server said 2", ids, result.Server.MeanBatch)
		}
		if result.Process == nil || result.Process.RSSBytes == 0 {
			t.Errorf("%s: no usage of the server process: %+v", ids, result.Process)
		}
	}
}

func TestLoadFindsWrongAnswers(t *testing.T) {
	f := startFakeServer(t, 5)
	f.spoil = func(step int, output []float32) {
		if step == 2 {
			output[7]++
		}
	}
	result, err := runLoad(t, f, "-verify", "accumulate", "-steps", "5")
	want := `step 2: output "Output" element 7`
	if err == nil || result.Mismatches == 0 || !strings.Contains(result.WrongTexts[0], want) {
		t.Errorf("error %v, %d mismatches %q; want those of step 2", err, result.Mismatches, result.WrongTexts)
	}
}

func TestLoadLeavesEmptyEndUnchecked(t *testing.T) {
	f := startFakeServer(t, 5)
	f.spoil = func(step int, output []float32) {
		if step == 4 {
			clear(output)
		}
	}
	if result, err := runLoad(t, f, "-verify", "accumulate", "-steps", "5", "-end-answer", "empty"); err != nil {
		t.Errorf("%v: %+v", err, result)
	}
}

func TestLoadCountsErrorsAndGoesOn(t *testing.T) {
	f := startFakeServer(t, 5)
	f.spoil = func(int, []float32) { clear(f.open) } // the server loses all sequences at every step
	result, err := runLoad(t, f, "-verify", "accumulate")
	if err == nil || result.Errors == 0 || result.Mismatches != 0 {
		t.Errorf("error %v, %d errors, %d mismatches; want only errors", err, result.Errors, result.Mismatches)
	}
	if len(result.ErrorTexts) == 0 || !strings.Contains(result.ErrorTexts[0], "no sequence") {
		t.Errorf("error texts %q", result.ErrorTexts)
	}
	if f.started < 10 {
		t.Errorf("only %d sequences were started; an error must start a new one", f.started)
	}
}

// TestLoadOfWrongValues: a sequence goes on after an error that was wanted; one whose START was wrong never begins.
func TestLoadOfWrongValues(t *testing.T) {
	for _, from := range []int{0, 2} {
		f := startFakeServer(t, 5)
		f.refuses = 99
		result, err := runLoad(t, f, "-steps", "5", "-wrong", "99", "-wrong-from", strconv.Itoa(from))
		if err == nil || result.Errors == 0 || len(result.ErrorTexts) != 1 || result.ErrorTexts[0] != "refused" {
			t.Errorf("from %d: error %v, %d errors %q", from, err, result.Errors, result.ErrorTexts)
		}
		if from == 0 && f.started != 0 || from > 0 && f.started == 0 || len(f.open) != 0 {
			t.Errorf("from %d: %d sequences were started, %d are open", from, f.started, len(f.open))
		}
		for id, times := range f.refused {
			if times > 3 {
				t.Errorf("from %d: %d of 5 requests of sequence %s were refused", from, times, id)
			}
		}
		if from > 0 && len(f.refused) == 0 {
			t.Error("no sequence went on")
		}
	}
}

func TestLoadStopsAfterRequests(t *testing.T) {
	f := startFakeServer(t, 5)
	result, err := runLoad(t, f, "-requests", "50", "-duration", "1m")
	if err != nil {
		t.Fatal(err)
	}
	if measured := result.Phases["measure"].Requests; measured < 50 {
		t.Errorf("measured %d requests, want 50 and a few in flight", measured)
	}
	if result.Seconds > 30 {
		t.Errorf("measured for %v s, though 50 requests were enough", result.Seconds)
	}
}

func TestLoadWithoutServer(t *testing.T) {
	var out bytes.Buffer
	err := run([]string{"-url", "127.0.0.1:1", "-model", "fake", "-inputs", fakeInputs}, &out)
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("error %v, want one that names the address", err)
	}
}

func TestLoadEndsWithItsServer(t *testing.T) {
	f := startFakeServer(t, 5)
	var served atomic.Int32
	f.spoil = func(int, []float32) {
		if served.Add(1) == 100 {
			go f.server.Stop() // Stop waits for handlers, and this is one
		}
	}
	var out bytes.Buffer
	err := run([]string{"-url", f.url, "-model", "fake", "-inputs", fakeInputs, "-duration", "1m"}, &out)
	if err == nil || !strings.Contains(err.Error(), "stream ") {
		t.Errorf("error %v, want that of a broken stream", err)
	}
	if out.Len() != 0 {
		t.Errorf("a broken run wrote a result: %s", out.String())
	}
}

func TestConfigFaults(t *testing.T) {
	good := []string{"-model", "m", "-inputs", fakeInputs}
	tests := map[string]struct {
		args []string
		want string
	}{
		"no model":         {[]string{"-inputs", fakeInputs}, "-model is missing"},
		"no inputs":        {[]string{"-model", "m"}, "-inputs is empty"},
		"inputs no JSON":   {[]string{"-model", "m", "-inputs", "Input"}, "not a JSON list"},
		"no sequences":     {append(good, "-sequences", "0"), "-sequences must be"},
		"no steps":         {append(good, "-steps", "0"), "-steps must be"},
		"ID 0":             {append(good, "-first-id", "0"), "-first-id 0"},
		"verify what":      {append(good, "-verify", "all"), `-verify "all"`},
		"verify no output": {append(good, "-verify", "accumulate"), "-outputs"},
		"end answer":       {append(good, "-end-answer", "late"), `-end-answer "late"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parseConfig(test.args)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q in it", err, test.want)
			}
		})
	}
}

func TestMakeInputs(t *testing.T) {
	tensors, err := makeInputs([]inputSpec{
		{Name: "bool", Datatype: "BOOL", Shape: []int64{1, 3}},
		{Name: "half", Datatype: "FP16", Shape: []int64{1, 3}},
		{Name: "long", Datatype: "INT64", Shape: []int64{1, 3}},
	}, 1) // values 3, 4, 5
	if err != nil {
		t.Fatal(err)
	}
	want := [][]byte{
		{1, 0, 1},
		{0x00, 0x42, 0x00, 0x44, 0x00, 0x45},
		{3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0},
	}
	for i, tensor := range tensors {
		if !bytes.Equal(tensor.Data, want[i]) {
			t.Errorf("%s is % x, want % x", tensor.Name, tensor.Data, want[i])
		}
	}
	for _, bad := range []inputSpec{{Datatype: "BYTES", Shape: []int64{1}}, {Datatype: "FP32", Shape: []int64{-1}}} {
		if _, err := makeInputs([]inputSpec{bad}, 0); err == nil {
			t.Errorf("made data for %+v", bad)
		}
	}
}

func TestSummarize(t *testing.T) {
	if got := summarize(nil); got != (Latency{}) {
		t.Errorf("no latencies: %+v", got)
	}
	one := summarize([]time.Duration{7 * time.Microsecond})
	if one != (Latency{Mean: 7, P50: 7, P90: 7, P99: 7, Max: 7}) {
		t.Errorf("one latency: %+v", one)
	}
	var latencies []time.Duration
	for i := range 200 {
		latencies = append(latencies, time.Duration(200-i)*time.Microsecond)
	}
	if got, want := summarize(latencies), (Latency{Mean: 100.5, P50: 100, P90: 180, P99: 198, Max: 200}); got != want {
		t.Errorf("1 to 200 µs: %+v, want %+v", got, want)
	}
}

func TestResultForPeople(t *testing.T) {
	r := Result{
		Model: "m", Checked: true, Mismatches: 3, WrongTexts: []string{"step 1: bad"},
		Process: &Process{CPUPerRequest: 51.7},
	}
	text := r.String()
	for _, want := range []string{"m: ", "51.7 µs/request", "0 errors, 3 wrong answers", "    step 1: bad"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}
