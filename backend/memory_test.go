package backend

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// SessionBytes implements onnx.Sizer.
func (r *sharer) SessionBytes() int64 { return 1 << 40 }

// TestMemoryReports: a shared session counts once, those that instances have to themselves each,
// and what the instances hold besides goes when they are closed.
func TestMemoryReports(t *testing.T) {
	for parameters, both := range map[string]int64{"": 1, `"share_session_between_instances":{"string_value":"0"}`: 2} {
		var reports [][]MemoryUse
		s := &sharers{t: t, memory: func(uses []MemoryUse) { reports = append(reports, uses) }}
		m := s.model(parameters)
		var instances [2]*Instance
		for i := range instances {
			in, err := m.NewInstance(InstanceInfo{Name: fmt.Sprint("model_0_", i), Kind: "cpu"})
			require.NoError(t, err)
			instances[i] = in
		}
		own := instances[0].io.bytes() + instances[0].store.BatchBytes()
		require.Positive(t, own)
		instances[0].reportMemory() // nothing has changed: the server is told nothing
		instances[0].Close()
		instances[1].Close()
		var got []int64
		for _, uses := range reports {
			require.Len(t, uses, 1)
			require.Equal(t, HostMemory, uses[0].Device)
			got = append(got, uses[0].Bytes)
		}
		require.Equal(t, []int64{1<<40 + own, both<<40 + 2*own, 1<<40 + own, 0}, got, parameters)
	}
}

// TestTrialsReportNoMemory: the server learns what the instance holds, and nothing of the
// instances that prove its masks.
func TestTrialsReportNoMemory(t *testing.T) {
	model, c, _ := maskedModel(0)
	in := model.loaded(t, c)
	var reports []int64
	info := in.model.info
	info.ReportMemory = func(uses []MemoryUse) {
		for _, u := range uses {
			reports = append(reports, u.Bytes)
		}
	}
	m, err := NewModel(info, in.model.server)
	require.NoError(t, err)
	second, err := m.NewInstance(InstanceInfo{Name: "model_0", Kind: "cpu"})
	require.NoError(t, err)
	require.Equal(t, []int64{second.memoryUse()[HostMemory]}, reports)
	second.Close()
}

// TestTrim: free memory goes back to the system once at the end of a load, whether it fails or
// not, and of an unload; the instances that prove masks have no part in it.
func TestTrim(t *testing.T) {
	model, c, _ := maskedModel(0)
	in := model.loaded(t, c)
	trims, server := 0, in.model.server
	server.Trim = func() { trims++ }
	m, err := NewModel(in.model.info, server)
	require.NoError(t, err)
	second, err := m.NewInstance(InstanceInfo{Name: "model_0", Kind: "cpu"})
	require.NoError(t, err)
	require.Equal(t, 1, trims)
	second.Close()
	require.Equal(t, 2, trims)
	m.faults = errInjected
	_, err = m.NewInstance(InstanceInfo{Name: "model_0", Kind: "cpu"})
	require.ErrorIs(t, err, errInjected)
	require.Equal(t, 3, trims)
}

// TestMemoryOfStates: what a growing store holds is reported between batches.
func TestMemoryOfStates(t *testing.T) {
	var last []MemoryUse
	k := &ticks{}
	s := newServer(t, slots(16, 2), ticking(k), func(s *setup) { s.memoryReport = func(uses []MemoryUse) { last = uses } },
		param("initial_buffer_size", "4"), param("subsequent_buffer_size", "4"), param("buffer_alloc_threshold", "2"), param("buffer_dealloc_threshold", "6"))
	before := last[0].Bytes
	for id := range 6 {
		s.batch(startOf(1 + id)).ok()
	}
	require.Equal(t, before, last[0].Bytes)
	require.True(t, k.tick(t))
	require.Equal(t, before+4*s.in.store.SlotBytes(), last[0].Bytes)
}
