// Package kserve sends inference requests to Triton over gRPC, one by one or as a stream. Sequences that outlive their
// server are in package stateful; the benchmarks and the soak use this package alone. Its messages are generated from
// grpc_service.proto:
//
//	pip install grpcio-tools
//	go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
//	go generate ./kserve
//
// A step of a sequence:
//
//	request := kserve.NewRequest("accumulate_fp32", "0", inputs)
//	request.SetStep(kserve.SequenceID{Number: 7}, true, false)
//	err := stream.Send(request)
package kserve
