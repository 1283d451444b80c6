package main

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestLearn: what a client believes of its sequence after an exchange.
func TestLearn(t *testing.T) {
	tests := []struct {
		name        string
		x           exchange
		before      bool
		alive, lost bool
	}{
		{"START", exchange{start: true, done: true}, false, true, false},
		{"a step", exchange{done: true}, true, true, false},
		{"END", exchange{end: true, done: true}, true, false, false},
		{"an error", exchange{done: true, err: "evicted"}, true, false, false},
		{"a cancelled step", exchange{}, true, true, false},
		{"a cancelled START", exchange{start: true}, false, false, true},
		{"a cancelled END", exchange{end: true}, true, true, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := client{alive: tt.before}
			c.learn(&tt.x)
			if c.alive != tt.alive || c.lost != tt.lost {
				t.Errorf("alive %v, lost %v, want %v and %v", c.alive, c.lost, tt.alive, tt.lost)
			}
		})
	}
}

// TestDecide: the dice make everything that a client can do, names are never used twice, and END knows of a START after
// it.
func TestDecide(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	does := func(alive, lost bool) map[string]bool {
		seen := map[string]bool{}
		c := newClient(0, "m", 7, 0)
		name := int64(7) << 32
		for range 5000 {
			c.alive, c.lost = alive, lost
			c.decide(rng)
			move := ""
			for i := range c.pending {
				x := &c.pending[i]
				if name++; x.name != name {
					t.Fatalf("the name is %#x, want %#x", x.name, name)
				}
				move += map[[2]bool]string{{}: "step ", {true, false}: "START ", {false, true}: "END ", {true, true}: "START+END "}[[2]bool{x.start, x.end}]
			}
			if follows := move == "END START "; follows != (c.pending[0].successor != 0) || follows && c.pending[0].successor != name {
				t.Fatalf("%s: the successor is %#x", move, c.pending[0].successor)
			}
			seen[move] = true
		}
		return seen
	}
	check := func(got map[string]bool, want ...string) {
		t.Helper()
		for _, move := range want {
			if !got[move] {
				t.Errorf("%v has no %q", got, move)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%v, want %q only", got, want)
		}
	}
	check(does(false, true), "START ")
	check(does(true, true), "START ")
	check(does(false, false), "START ", "START+END ", "START step ", "step ", "END ")
	check(does(true, false), "step ", "END ", "START ", "step step ", "END START ", "END step ")
}

// TestNote: a client goes on when the last answer has come, in whatever order they do.
func TestNote(t *testing.T) {
	sent := time.Now()
	c := newClient(0, "m", 7, 0)
	c.pending = append(c.pending, exchange{}, exchange{})
	for i := range c.pending {
		c.prepare(i, sent)
	}
	if c.note(1, &answer{at: sent.Add(time.Second), err: "no"}) {
		t.Error("it goes on after the first of two answers")
	}
	if !c.note(0, &answer{at: sent.Add(time.Minute), values: [3]int64{1, 2, 3}}) {
		t.Error("it does not go on after both")
	}
	x, y := &c.pending[0], &c.pending[1]
	if x.values != [3]int64{1, 2, 3} || x.latency != time.Minute || y.err != "no" || y.latency != time.Second {
		t.Errorf("noted %+v and %+v", x, y)
	}
}

// TestPause: clients mostly go on at once, and at times come back too late.
func TestPause(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	counts := [3]int{}
	for range 10_000 {
		switch p := pause(rng, time.Second); {
		case p == 0:
			counts[0]++
		case p < time.Second:
			counts[1]++
		case p < 2*time.Second:
			counts[2]++
		default:
			t.Fatalf("a pause of %v", p)
		}
	}
	if counts[0] < 9800 || counts[1] < 20 || counts[2] < 20 {
		t.Errorf("none, short and long pauses: %v", counts)
	}
}
