package ortrunner

// #include <unistd.h>
import "C"

import "golang.org/x/sys/unix"

// Triton binds the thread that loads an instance to the cores of its host policy. Threads
// that are started then inherit that, those of ONNX Runtime too: but if it chooses their
// number, it takes one for each core of the machine and binds each to its core.

// intraOpThreads is the number of threads to ask ONNX Runtime for. It may choose, by 0, only
// if the calling thread may run on every core.
func intraOpThreads(wanted int) int {
	if wanted != 0 {
		return wanted
	}
	if cores := threadCores(); cores != nil && cores.Count() < int(C.sysconf(C._SC_NPROCESSORS_ONLN)) {
		return cores.Count()
	}
	return 0
}

// threadCores are those that the calling thread may run on; nil: not known.
func threadCores() *unix.CPUSet {
	var cores unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cores); err != nil { // a machine with more cores than the set has room for
		return nil
	}
	return &cores
}
