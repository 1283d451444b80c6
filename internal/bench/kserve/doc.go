// Package kserve speaks the few messages of the KServe v2 inference protocol (as Triton serves it over gRPC) that a
// load generator needs: ModelInferRequest out, ModelStreamInferResponse in, and ModelStatistics.
//
// The messages are written by hand over protowire instead of generated, for two reasons. A request is encoded once per
// sequence and only its last bytes change from step to step, so that sending costs no encoding and no copy; and no
// foreign interface file has to be kept. The field numbers are those of the service's public description.
//
//	request := kserve.NewRequest(kserve.Call{Model: "accumulate_fp32", ID: "0", Inputs: inputs})
//	request.SetStep(kserve.SequenceID{Number: 7}, kserve.Start)
//	err := stream.SendMsg(request) // a stream opened with kserve.StreamInfer
package kserve
