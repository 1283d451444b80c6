// Package tensor defines the element type ([DType]) and the shape ([Shape]) of
// tensors, parses and writes single elements, and converts between FP32 and FP16.
// It has no state, owns no memory and imports no other package of this module. Its
// functions may be called from any goroutine.
//
// The values of DType equal those of TRITONSERVER_DataType, so that they cross
// the C boundary unchanged. Names are those of Triton's model configuration
// ("TYPE_FP32") and of its protocol ("FP32").
package tensor
