package load

import (
	"bytes"
	"testing"
	"time"
)

func TestMakeInputs(t *testing.T) {
	tensors, err := makeInputs([]Input{
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
	for _, bad := range []Input{{Datatype: "FP8", Shape: []int64{1}}, {Datatype: "FP32", Shape: []int64{-1}}} {
		if _, err := makeInputs([]Input{bad}, 0); err == nil {
			t.Errorf("made data for %+v", bad)
		}
	}
}

func TestPercentile(t *testing.T) {
	var latencies []time.Duration
	if got := percentile(latencies, 50); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
	for i := range 200 {
		latencies = append(latencies, time.Duration(i+1)*time.Microsecond)
	}
	if p50, p99 := percentile(latencies, 50), percentile(latencies, 99); p50 != 100 || p99 != 198 {
		t.Errorf("of 1 to 200 µs: %v and %v, want 100 and 198", p50, p99)
	}
}

func TestFairness(t *testing.T) {
	for _, tt := range []struct {
		numbers       []int
		slowest, jain float64
	}{
		{nil, 0, 0},
		{[]int{0, 0}, 0, 0},
		{[]int{7, 7, 7}, 1, 1},
		{[]int{4, 2, 4}, 0.5, 100.0 / 108},
		{[]int{0, 9, 0}, 0, 1.0 / 3},
	} {
		if slowest, jain := fairness(tt.numbers); slowest != tt.slowest || jain != tt.jain {
			t.Errorf("%v: %v and %v, want %v and %v", tt.numbers, slowest, jain, tt.slowest, tt.jain)
		}
	}
}
