// Package kserve is the client that the benchmark and the soak share: streams of inference requests, as Triton takes them
// over gRPC. Its messages are generated from grpc_service.proto:
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
