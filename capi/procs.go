package main

import (
	"runtime"
	"sync"
)

// instances counts those that live, of all models.
var instances struct {
	sync.Mutex
	live int
}

// countInstance notes that an instance has come, by 1, or gone, by -1.
//
// A thread of Triton's keeps its right to run Go while its model runs in C. With more
// instances than rights, the others wait until Go's monitor takes one away, for which
// it may take 20 ms here (see the loader). So there is one for each, and one for
// whatever else is to be done. Go gives as many as there are processors by itself; it
// is never told to give fewer.
func countInstance(by int) {
	instances.Lock()
	defer instances.Unlock()
	instances.live += by
	if need := instances.live + 1; need > runtime.GOMAXPROCS(0) {
		runtime.GOMAXPROCS(need)
	}
}
