package cuda

import "sync"

// capturing is held for writing while a CUDA graph is captured, and for reading by
// calls that must not happen meanwhile: CUDA refuses calls of other threads that
// allocate or free memory, and they spoil the capture.
var capturing sync.RWMutex

// Capture calls do, which captures a CUDA graph, while no one else in the process
// captures one, and while no [Context] allocates or frees memory. do must not do
// that either.
func Capture(do func() error) error {
	capturing.Lock()
	defer capturing.Unlock()
	return do()
}
