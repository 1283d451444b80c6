package backend

import (
	"maps"
	"slices"
	"sync"

	"tritonstateful/internal/onnx"
	"tritonstateful/statebuffer"
)

// MemoryUse is how many bytes a model holds of one memory.
type MemoryUse struct {
	// Device is the ordinal of the GPU whose memory it is, or HostMemory.
	Device int
	Bytes  int64
}

// HostMemory is the Device of the host's memory.
const HostMemory = -1

// memoryReport sums up what the sessions and instances of a model hold. It tells the server
// when that has changed. The zero value is ready.
type memoryReport struct {
	mu        sync.Mutex
	instances map[*Instance]map[int]int64 // what each holds, by Device
	last      map[int]int64               // what the server knows
}

// reportMemory tells the server what the model holds, as far as the instance knows.
func (in *Instance) reportMemory() {
	if in.model.info.ReportMemory != nil {
		in.model.reportMemory(in, in.memoryUse())
	}
}

// reportMemory replaces what an instance holds; nil: it is closed.
func (m *Model) reportMemory(in *Instance, holds map[int]int64) {
	r := &m.memory
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.instances == nil {
		r.instances = map[*Instance]map[int]int64{}
	}
	r.instances[in] = holds
	if holds == nil {
		delete(r.instances, in)
	}
	sum := map[int]int64{HostMemory: m.sessions.bytes()}
	for _, of := range r.instances {
		for device, bytes := range of {
			sum[device] = statebuffer.SatAdd(sum[device], bytes)
		}
	}
	if maps.Equal(sum, r.last) {
		return
	}
	r.last = sum
	var uses []MemoryUse
	for _, device := range slices.Sorted(maps.Keys(sum)) {
		uses = append(uses, MemoryUse{device, sum[device]})
	}
	m.info.ReportMemory(uses)
}

// memoryUse is what the instance holds by itself: its states and batched tensors, and its
// session, unless it shares that.
func (in *Instance) memoryUse() map[int]int64 {
	host, device := in.io.bytes(), statebuffer.SatAdd(in.store.Usage().Bytes, in.store.BatchBytes())
	if !in.shared {
		device = statebuffer.SatAdd(device, sessionBytes(in.runner))
	}
	if in.device == nil {
		return map[int]int64{HostMemory: statebuffer.SatAdd(host, device)}
	}
	// What the host fills and reads is on the device, too.
	return map[int]int64{HostMemory: host, in.device.Device().Ordinal: statebuffer.SatAdd(host, device)}
}

// bytes is what the sessions hold that instances share.
func (s *sessions) bytes() (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, open := range s.open {
		n = statebuffer.SatAdd(n, sessionBytes(open[0]))
	}
	return n
}

// sessionBytes is what a runner's session holds, 0 if it does not say.
func sessionBytes(r onnx.Runner) int64 {
	if s, can := r.(onnx.Sizer); can {
		return s.SessionBytes()
	}
	return 0
}
