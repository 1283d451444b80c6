package main

import (
	"runtime"
	"sync"
)

// instances counts the live instances of all models.
var instances struct {
	sync.Mutex
	live int
}

// adjustProcs counts an instance that is loaded, by 1, or unloaded, by -1, and raises
// GOMAXPROCS to one more than there are instances.
//
// A thread of Triton's keeps its P while its model runs in C. With more instances than
// GOMAXPROCS, the others wait until sysmon retakes a P, which can take 20 ms here
// because of its timer slack (see threads.c). So there is one P for each instance, and
// one for all other goroutines. GOMAXPROCS is never lowered.
func adjustProcs(by int) {
	instances.Lock()
	defer instances.Unlock()
	instances.live += by
	if need := instances.live + 1; need > runtime.GOMAXPROCS(0) {
		runtime.GOMAXPROCS(need)
	}
}
