package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tritonstateful/clients/go/load"
)

const fakeInputs = `[{"name":"Input","datatype":"FP32","shape":[1,4,1,5]}]`

// runLoad runs the program against the fake server for a short time and returns its result.
func runLoad(t *testing.T, f *fakeServer, extra ...string) (load.Result, error) {
	t.Helper()
	args := append([]string{
		"-url", f.url, "-model", "fake", "-inputs", fakeInputs, "-outputs", "Output",
		"-sequences", "7", "-streams", "3", "-warmup", "20ms", "-duration", "60ms",
	}, extra...)
	var out bytes.Buffer
	failure := run(args, &out)
	text, begins := bytes.CutPrefix(bytes.TrimPrefix(out.Bytes(), []byte("opened\n")), []byte("measuring\nmeasured\n"))
	var result load.Result
	if err := json.Unmarshal(text, &result); err != nil || !begins {
		t.Fatalf("result %q: %v (run: %v)", out.String(), err, failure)
	}
	return result, failure
}

func TestLoadOfCorrectServer(t *testing.T) {
	for _, ids := range []string{"-string-ids=false", "-string-ids=true"} {
		f := startFakeServer(t)
		result, err := runLoad(t, f, ids, "-verify", "-steps", "6")
		if err != nil {
			t.Fatalf("%s: %v: %+v", ids, err, result)
		}
		if result.Requests == 0 || result.Requests >= f.requests || result.P50 <= 0 || result.P99 < result.P50 {
			t.Errorf("%s: %+v, and the server saw %d requests", ids, result, f.requests)
		}
		if len(f.open) != 0 {
			t.Errorf("%s: %d sequences were never ended", ids, len(f.open))
		}
		if f.started < f.requests/6 {
			t.Errorf("%s: %d sequences for %d requests of 6 steps", ids, f.started, f.requests)
		}
	}
}

func TestLoadFindsWrongAnswers(t *testing.T) {
	f := startFakeServer(t)
	f.spoil = func(step int, output []float32) {
		if step == 2 {
			output[7]++
		}
	}
	result, err := runLoad(t, f, "-verify", "-steps", "5")
	if want := `step 2: output "Output" element 7`; err == nil || result.Mismatches == 0 || !strings.Contains(result.Texts[0], want) {
		t.Errorf("error %v, %d mismatches %q; want those of step 2", err, result.Mismatches, result.Texts)
	}
}

func TestLoadLeavesEmptyEndUnchecked(t *testing.T) {
	f := startFakeServer(t)
	f.spoil = func(step int, output []float32) {
		if step == 4 {
			clear(output)
		}
	}
	if result, err := runLoad(t, f, "-verify", "-steps", "5", "-empty-end"); err != nil {
		t.Errorf("%v: %+v", err, result)
	}
}

func TestLoadCountsErrorsAndGoesOn(t *testing.T) {
	f := startFakeServer(t)
	f.spoil = func(int, []float32) { clear(f.open) } // the server loses all sequences at every step
	result, err := runLoad(t, f, "-verify")
	if err == nil || result.Errors == 0 || result.Mismatches != 0 || !strings.Contains(result.Texts[0], "no sequence") {
		t.Errorf("error %v, %+v; want only errors", err, result)
	}
	if f.started < 10 {
		t.Errorf("only %d sequences were started; an error must start a new one", f.started)
	}
}

// TestLoadOfFewOfManySequences: all are started first, all have steps, and all are ended.
func TestLoadOfFewOfManySequences(t *testing.T) {
	f := startFakeServer(t)
	var atOpening int
	opened := func(text []byte) (int, error) {
		if string(text) == "opened\n" {
			f.mu.Lock()
			defer f.mu.Unlock()
			atOpening = f.requests
		}
		return len(text), nil
	}
	err := run([]string{
		"-url", f.url, "-model", "fake", "-inputs", fakeInputs, "-outputs", "Output", "-verify", "-steps", "1000",
		"-sequences", "50", "-active", "5", "-streams", "3", "-pause", "10ms", "-warmup", "20ms", "-duration", "200ms",
	}, writerFunc(opened))
	if err != nil {
		t.Fatal(err)
	}
	if atOpening != 50 {
		t.Errorf("%d requests were answered at the opening, want the 50 STARTs", atOpening)
	}
	once := 0
	for _, steps := range f.steps {
		if steps <= 2 { // START and END
			once++
		}
	}
	if f.started != 50 || len(f.open) != 0 || once > 25 {
		t.Errorf("%d sequences, %d of them not ended, %d without a step in %d requests", f.started, len(f.open), once, f.requests)
	}
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(text []byte) (int, error) { return w(text) }

// TestLoadOfWrongValues: a sequence goes on after an error that was wanted; one whose START was wrong never begins.
func TestLoadOfWrongValues(t *testing.T) {
	for _, from := range []int{0, 2} {
		f := startFakeServer(t)
		f.refuses = 99
		result, err := runLoad(t, f, "-steps", "5", "-wrong", "99", "-wrong-from", strconv.Itoa(from))
		if err == nil || result.Errors == 0 || len(result.Texts) != 1 || result.Texts[0] != "refused" {
			t.Errorf("from %d: error %v, %+v", from, err, result)
		}
		if from == 0 && f.started != 0 || from > 0 && (f.started == 0 || len(f.refused) == 0) || len(f.open) != 0 {
			t.Errorf("from %d: %d sequences were started, %d went on, %d are open", from, f.started, len(f.refused), len(f.open))
		}
		for id, times := range f.refused {
			if times > 3 {
				t.Errorf("from %d: %d of 5 requests of sequence %s were refused", from, times, id)
			}
		}
	}
}

func TestLoadWithoutServer(t *testing.T) {
	err := run([]string{"-url", "127.0.0.1:1", "-model", "fake", "-inputs", fakeInputs}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("error %v, want one that names the address", err)
	}
}

func TestLoadEndsWithItsServer(t *testing.T) {
	f := startFakeServer(t)
	var served atomic.Int32
	f.spoil = func(int, []float32) {
		if served.Add(1) == 100 {
			go f.server.Stop() // Stop waits for handlers, and this is one
		}
	}
	began := time.Now()
	err := run([]string{"-url", f.url, "-model", "fake", "-inputs", fakeInputs, "-duration", "1m"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "stream ") || time.Since(began) > 30*time.Second {
		t.Errorf("error %v after %v, want that of a broken stream", err, time.Since(began))
	}
}

func TestConfigFaults(t *testing.T) {
	good := []string{"-model", "m", "-inputs", fakeInputs}
	for want, args := range map[string][]string{
		"-model, ":           {"-inputs", fakeInputs},
		"not a JSON list":    {"-model", "m"},
		"must be given":      append(good, "-sequences", "0"),
		"-verify needs":      append(good, "-verify"),
		"-active must be":    append(good, "-sequences", "2", "-active", "3"),
		"-rate excludes":     append(good, "-rate", "5", "-active", "3"),
		"and excludes -wron": append(good, "-verify", "-outputs", "y", "-wrong", "1"),
	} {
		if _, err := parseConfig(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q in it", args, err, want)
		}
	}
}

func TestSamples(t *testing.T) {
	f, path := startFakeServer(t), filepath.Join(t.TempDir(), "samples")
	result, err := runLoad(t, f, "-samples", path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var began, took int64
	if _, err := fmt.Sscan(lines[0], &began, &took); err != nil || len(lines) != result.Requests {
		t.Fatalf("%d samples of %d requests, the first is %q: %v", len(lines), result.Requests, lines[0], err)
	}
	if age := time.Since(time.Unix(0, began)); age < time.Duration(took) || age > time.Minute || took <= 0 {
		t.Errorf("began %v ago, took %d ns", age, took)
	}
}
