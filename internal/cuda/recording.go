package cuda

import "sync"

// recording is held for writing while a CUDA graph is recorded, and for reading by
// whatever must not happen meanwhile: CUDA refuses calls of other threads that take
// or give back memory, and the recording is spoilt by them.
var recording sync.RWMutex

// Recording does what records a CUDA graph, while nobody else in the process does,
// and while no [Context] takes or gives back memory. do must not do that either.
func Recording(do func() error) error {
	recording.Lock()
	defer recording.Unlock()
	return do()
}
