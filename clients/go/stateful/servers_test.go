package stateful

import (
	"encoding/binary"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tritonstateful/clients/go/kserve"
)

// TestServers has sequences on real servers, which scripts/e2e/test_drill.py kills meanwhile: STATEFUL_SERVERS has their
// addresses. The model is that of scripts/drills/model.py.
func TestServers(t *testing.T) {
	addresses := os.Getenv("STATEFUL_SERVERS")
	if addresses == "" {
		t.Skip("STATEFUL_SERVERS is not set: scripts/e2e/test_drill.py sets it")
	}
	conns, err := Dial(strings.Split(addresses, ",")...)
	if err != nil {
		t.Fatal(err)
	}
	var recoveries atomic.Int64
	end := time.Now().Add(5 * time.Second)
	t.Run("sequences", func(t *testing.T) {
		for name := range int64(20) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				s := New(conns, "by_steps", Options{Attempts: 60})
				hash, steps := int64(0), int64(0)
				for last := false; !last; steps++ {
					last = time.Now().After(end)
					values := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(name+1)), uint64(steps))
					input := []kserve.Tensor{{Name: "X", Datatype: "INT64", Shape: []int64{1, 2}, Data: values}}
					send := s.Infer
					if last {
						send = s.End
					}
					answer, err := send(t.Context(), input, Outputs("Y"))
					if err != nil {
						t.Fatalf("step %d: %v", steps, err)
					}
					hash = hash*3 + steps
					var got [4]int64
					for i := range got {
						got[i] = int64(binary.LittleEndian.Uint64(answer.Outputs[0].Data[8*i:]))
					}
					if want := [4]int64{name + 1, name + 1, steps + 1, hash}; got != want {
						t.Fatalf("step %d: %v, want %v", steps, got, want)
					}
					time.Sleep(20 * time.Millisecond)
				}
				recoveries.Add(int64(s.Recoveries()))
			})
		}
	})
	if recoveries.Load() == 0 {
		t.Error("no sequence had to be continued")
	}
	for _, conn := range conns {
		conn.Close()
	}
}
