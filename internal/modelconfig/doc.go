// Package modelconfig reads and writes Triton's model configurations as people have them, in config.pbtxt, and as a
// backend gets them, in JSON. The messages are generated from model_config.proto:
//
//	pip install grpcio-tools
//	go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
//	go generate ./internal/modelconfig
//
// The way of a file to a backend, and back:
//
//	m, err := modelconfig.Parse(text)        // config.pbtxt
//	json := modelconfig.JSON(m)              // what backend/config.Parse reads
//	m, err = modelconfig.FromJSON(completed) // what backend.Complete returns
//	text = modelconfig.Format(m, nil)        // config.pbtxt
//
// Comments of a file are lost on the way. The package is pure Go, and its functions are safe for concurrent use.
package modelconfig
