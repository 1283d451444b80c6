package triton

// The oldest TRITONBACKEND API with every function that capi's table.h requires.
const (
	OldestAPIMajor = 1
	OldestAPIMinor = 8
)
