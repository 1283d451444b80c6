// Package devicememory implements statebuffer.Memory with a GPU's memory: states
// never leave the device.
//
// Gather and Scatter are one kernel launch each, whatever the number of states and
// lanes. A list of what the kernel is to move is written to pinned host memory, copied
// to the device and read there, all in the stream of the instance. Nothing here waits
// for the device, except where the comments say so.
//
// If the driver rejects the kernels, individual copies do the same, which is slow;
// [Memory.Degraded] returns why.
package devicememory
