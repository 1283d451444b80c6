package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestRecordsAsTheCheckerReadsThem: scripts/e2e/test_checker.py reads the same file, and finds these exchanges in it.
func TestRecordsAsTheCheckerReadsThem(t *testing.T) {
	began := time.Now()
	at := began.Add
	var records []byte
	add := func(model int, id uint64, x exchange) { records = appendRecord(records, model, id, &x, began) }
	add(0, 1, exchange{start: true, name: 1<<32 + 1, sent: at(5), done: true, values: [3]int64{1<<32 + 1, 1<<32 + 1, 1}, latency: time.Millisecond})
	add(2, 1<<63, exchange{end: true, name: 8, successor: 9, sent: at(time.Hour), done: true, empty: true, latency: 7})
	add(1, 3, exchange{name: -1, sent: at(6), done: true, err: "its state was evicted – 2s ago", empty: true, latency: 8})
	add(1, 4, exchange{start: true, end: true, name: 11, sent: at(7)})

	want, err := os.ReadFile("testdata/records.hex")
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(records); got != strings.Join(strings.Fields(string(want)), "") {
		t.Errorf("testdata/records.hex is not\n%s", got)
	}
}

// TestRecorderKeepsTheOrderOfEachStream, although several put at the same time and the checker reads in between.
func TestRecorderKeepsTheOrderOfEachStream(t *testing.T) {
	reading, writing := io.Pipe()
	r := newRecorder(writing)
	go func() {
		var streams sync.WaitGroup
		for stream := range 4 {
			streams.Go(func() {
				for name := range int64(20_000) {
					r.put(stream, 1, &exchange{name: name, done: true, sent: r.began})
				}
			})
		}
		streams.Wait()
		writing.CloseWithError(r.close())
	}()
	records, err := io.ReadAll(reading)
	if err != nil {
		t.Fatal(err)
	}
	var counts [4]int64
	for len(records) > 0 {
		stream := records[4]
		want := appendRecord(nil, int(stream), 1, &exchange{name: counts[stream], done: true, sent: r.began}, r.began)
		if !bytes.HasPrefix(records, want) {
			t.Fatalf("record %d of stream %d is %x, want %x", counts[stream], stream, records[:len(want)], want)
		}
		counts[stream]++
		records = records[len(want):]
	}
	if counts != [4]int64{20_000, 20_000, 20_000, 20_000} {
		t.Errorf("records of each stream: %v", counts)
	}
}

// TestRecorderAllocatesNothing once its buffers have grown.
func TestRecorderAllocatesNothing(t *testing.T) {
	r := newRecorder(io.Discard)
	x := exchange{done: true, err: "its state was evicted"}
	put := func() {
		for range 1000 {
			r.put(0, 1, &x)
		}
		time.Sleep(2 * writeEvery)
	}
	put()
	put()
	if n := testing.AllocsPerRun(3, put); n >= 10 {
		t.Errorf("1000 records take %v allocations", n)
	}
	if err := r.close(); err != nil {
		t.Error(err)
	}
}

// TestRecorderWaitsForTheChecker: what the checker does not take up does not fill the memory.
func TestRecorderWaitsForTheChecker(t *testing.T) {
	reading, writing := io.Pipe()
	r := newRecorder(writing)
	full := make(chan struct{})
	go func() {
		x := exchange{done: true, err: strings.Repeat("x", mostBytes)}
		for range 4 {
			r.put(0, 1, &x)
		}
		close(full)
	}()
	select {
	case <-full:
		t.Error("it takes 16 MiB that are not read")
	case <-time.After(10 * writeEvery):
	}
	go io.Copy(io.Discard, reading) //nolint:errcheck // what comes does not matter
	<-full
	if err := r.close(); err != nil {
		t.Error(err)
	}
}

// TestRecorderTellsOfTheFirstFailure, and goes on taking records.
func TestRecorderTellsOfTheFirstFailure(t *testing.T) {
	reading, writing := io.Pipe()
	gone := errors.New("the reader is gone")
	reading.CloseWithError(gone)
	r := newRecorder(writing)
	for range 3 {
		r.put(0, 1, &exchange{})
		time.Sleep(2 * writeEvery)
	}
	if err := r.close(); !errors.Is(err, gone) {
		t.Errorf("close says %v, want %v", err, gone)
	}
}
