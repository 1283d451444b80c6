package backend

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/status"
)

// TestReady: an instance on a GPU is ready as long as the driver answers.
func TestReady(t *testing.T) {
	require.NoError(t, newServer(t).in.Ready())
	in, l := loadOnGPU(t)
	require.NoError(t, in.Ready())
	l.gpu.broken = errInjected
	err := in.Ready()
	require.ErrorIs(t, err, errInjected)
	require.ErrorContains(t, err, `instance "model_0_3": GPU 3 (Test, GPU-1) does not answer`)
	require.Equal(t, status.Unavailable, status.CodeOf(err))
}

// TestMemoryOfAGPU: states and tensors of a batch are on the device, and what the host fills and
// reads of them also on the host.
func TestMemoryOfAGPU(t *testing.T) {
	var last []MemoryUse
	in, _ := loadOnGPU(t, func(s *setup) { s.memoryReport = func(uses []MemoryUse) { last = uses } })
	host := in.io.bytes()
	require.Equal(t, []MemoryUse{{HostMemory, host}, {3, host + in.store.Usage().Bytes + in.store.BatchBytes()}}, last)
}
