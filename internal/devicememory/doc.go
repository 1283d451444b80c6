// Package devicememory is a GPU's memory as a statebuffer.Memory: states that
// never leave the device.
//
// Gather and Scatter are one launch of a kernel each, whatever the number of
// states and lanes. What the kernel is to do, a plan, is written to pinned host
// memory, copied to the device and read there, all in the stream of the instance:
// nothing here waits for the device, except where it says so.
//
// Where the driver does not take the kernels, the same is done with single
// copies, which is right but slow; [Memory.Degraded] tells.
package devicememory
