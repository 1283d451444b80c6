package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"tritonstateful/internal/bench/procstat"
)

const idle = 2 * time.Second

// TestAccount tells stories of one client; each exchange has the kind that is due.
func TestAccount(t *testing.T) {
	ok := func(name, step int64) exchange { return exchange{values: [3]int64{name, name, step}} }
	start := func(name int64) exchange {
		return exchange{start: true, name: name, values: [3]int64{name, name, 1}}
	}
	fails := func(x exchange, err string) exchange { x.err = err; return x }
	after := func(d time.Duration, x exchange) exchange { x.sent = time.Time{}.Add(d); return x }
	ending := func(x exchange) exchange { x.end = true; return x }
	step := exchange{}
	type told struct {
		x    exchange
		want kind
	}
	tests := []struct {
		name  string
		rules rules
		story []told
	}{
		{"a sequence", rules{}, []told{{start(7), answered}, {ok(7, 2), answered}, {ending(ok(7, 3)), answered}, {fails(step, "x must specify the START flag y"), dropped}}},
		{"a foreign name", rules{}, []told{{start(7), answered}, {ok(8, 2), foreign}}},
		{"a part that is foreign", rules{}, []told{{start(7), answered}, {exchange{values: [3]int64{0, 7, 2}}, foreign}}},
		{"a step twice", rules{}, []told{{start(7), answered}, {ok(7, 2), answered}, {ok(7, 2), foreign}}},
		{"a step left out", rules{}, []told{{start(7), answered}, {ok(7, 3), foreign}}},
		{"a START that is not one", rules{}, []told{{start(7), answered}, {exchange{start: true, name: 8, values: [3]int64{7, 7, 2}}, foreign}}},
		{"an answer after END", rules{}, []told{{start(7), answered}, {ending(ok(7, 2)), answered}, {ok(7, 3), foreign}}},
		{"an answer to nobody", rules{}, []told{{ok(0, 1), foreign}}},
		{"an empty answer", rules{}, []told{{start(7), answered}, {exchange{empty: true}, foreign}}},
		{"END without an answer", rules{EndSilent: true}, []told{{start(7), answered}, {ending(exchange{empty: true}), answered}, {fails(step, "no such sequence is known"), unknown}}},
		{"evicted", rules{Evicts: true}, []told{{start(7), answered}, {fails(step, "its state was evicted"), evicted}, {ok(7, 2), foreign}}},
		{"evicted where nobody is", rules{}, []told{{start(7), answered}, {fails(step, "its state was evicted"), forbidden}}},
		{"full", rules{}, []told{{fails(start(7), "too many simultaneous sequences"), full}, {fails(step, "its START was refused"), refused}}},
		{"full where others give way", rules{Evicts: true}, []told{{fails(start(7), "too many simultaneous sequences"), forbidden}}},
		{"refused for no reason", rules{}, []told{{start(7), answered}, {fails(step, "its START was refused"), forbidden}}},
		{"forgotten for no reason", rules{}, []told{{start(7), answered}, {fails(step, "must specify the START flag"), forbidden}}},
		{"END overtaken", rules{}, []told{{start(7), answered}, {exchange{end: true, successor: 8, values: [3]int64{8, 8, 2}}, overtaken}, {start(8), answered}, {fails(step, "no such sequence is known"), unknown}}},
		{"END in order", rules{}, []told{{start(7), answered}, {exchange{end: true, successor: 8, values: [3]int64{7, 7, 2}}, answered}, {start(8), answered}, {ok(8, 2), answered}}},
		{"END overtaken by nobody", rules{}, []told{{start(7), answered}, {exchange{end: true, values: [3]int64{8, 8, 2}}, foreign}}},
		{"silent END overtaken", rules{EndSilent: true}, []told{{start(7), answered}, {exchange{end: true, successor: 8, empty: true}, answered}, {start(8), answered}, {fails(step, "no such sequence is known"), unknown}}},
		{"silent END in order", rules{EndSilent: true}, []told{{start(7), answered}, {exchange{end: true, successor: 8, empty: true}, answered}, {start(8), answered}, {ok(8, 2), answered}, {fails(step, "no such sequence is known"), forbidden}}},
		{"idle", rules{}, []told{{start(7), answered}, {after(idle, fails(step, "must specify the START flag")), dropped}}},
		{"expired too early", rules{}, []told{{start(7), answered}, {after(idle/4, fails(step, "its state expired")), forbidden}}},
		{"over the budget", rules{Budget: true}, []told{{start(7), answered}, {fails(step, "(max_state_memory_bytes)"), budget}, {ok(7, 2), answered}}},
		{"START over the budget", rules{Budget: true}, []told{{fails(start(7), "(max_state_memory_bytes)"), budget}, {fails(step, "its START failed"), failed}}},
		{"a strange error", rules{}, []told{{fails(start(7), "internal error"), forbidden}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.rules.Idle = idle
			var a account
			for i, one := range tt.story {
				if got, text := a.settle(&one.x, &tt.rules); got != one.want {
					t.Fatalf("exchange %d is %q (%s), want %q", i, kindNames[got], text, kindNames[one.want])
				}
			}
		})
	}
}

// TestCancelledSteps: nobody knows whether they ran, but their number bounds the count.
func TestCancelledSteps(t *testing.T) {
	for count, want := range map[int64]kind{1: foreign, 2: answered, 3: answered, 4: answered, 5: foreign} {
		a := account{alive: true, name: 7, steps: 1}
		a.abandon(&exchange{})
		a.abandon(&exchange{})
		if got, text := a.settle(&exchange{values: [3]int64{7, 7, count}}, &rules{Idle: idle}); got != want {
			t.Errorf("count %d is %q (%s), want %q", count, kindNames[got], text, kindNames[want])
		}
	}
	a := account{alive: true, name: 7}
	a.abandon(&exchange{end: true})
	if !a.lost {
		t.Error("after an END that was cancelled only a START makes sense")
	}
}

// TestVerdict: what fails a soak, and what does not.
func TestVerdict(t *testing.T) {
	tests := []struct {
		name   string
		change func(*report)
		want   string
	}{
		{"good", func(*report) {}, ""},
		{"foreign", func(r *report) { r.sum.kinds[foreign] = 1 }, "1 answers had foreign or wrong values"},
		{"forbidden", func(r *report) { r.sum.kinds[forbidden] = 2 }, "2 errors should not be"},
		{"nothing", func(r *report) { r.sum.kinds[answered] = 0 }, "nothing was answered"},
		{"memory", func(r *report) { grow(r, func(s *procstat.Status) { s.RSSBytes += 20 << 20 }) }, "MiB of memory grew from 100 to 120"},
		{"threads", func(r *report) { grow(r, func(s *procstat.Status) { s.Threads += 3 }) }, "threads grew from 50 to 53"},
		{"files", func(r *report) { grow(r, func(s *procstat.Status) { s.Files += 9 }) }, "open files grew from 70 to 79"},
		{"memory of cancelled requests", func(r *report) { r.breaks = true; grow(r, func(s *procstat.Status) { s.RSSBytes += 20 << 20 }) }, ""},
		{"a little", func(r *report) { grow(r, func(s *procstat.Status) { s.RSSBytes += 10 << 20; s.Threads++ }) }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			r := &report{out: &out}
			r.header()
			for i := range 40 {
				s := sample{at: time.Duration(i+1) * 5 * time.Second, took: 5 * time.Second, process: procstat.Status{RSSBytes: 100 << 20, Threads: 50, Files: 70}}
				s.tally.kinds[answered] = 10
				s.tally.latencies = []time.Duration{time.Millisecond, 3 * time.Millisecond}
				r.add(s)
			}
			tt.change(r)
			err := r.verdict()
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("the verdict is %v, want %q", err, tt.want)
			}
			if !strings.Contains(out.String(), "1.0      3.0      3.0      100       50    70  answered 100.0%") {
				t.Errorf("the table is\n%s", out.String())
			}
		})
	}
}

func grow(r *report, change func(*procstat.Status)) {
	for i := len(r.samples) / 2; i < len(r.samples); i++ {
		change(&r.samples[i].process)
	}
}
