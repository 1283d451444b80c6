// Package tensor holds the words that every other package uses to speak of
// tensors: the element type ([DType]) and the extent ([Shape]). It owns no
// memory, imports nothing of this module and has no state.
//
// The numbers of DType are those of TRITONSERVER_DataType, so that a value can
// cross the C boundary as it is; the names are those of Triton's model
// configuration ("TYPE_FP32") and of its protocol ("FP32").
package tensor
