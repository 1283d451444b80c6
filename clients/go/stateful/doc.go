// Package stateful has sequences on Triton's stateful backend that outlive their server.
//
//	conns, err := stateful.Dial("triton-0:8001", "triton-1:8001") // or one proxy
//	sequence := stateful.New(conns, "asr", stateful.Options{})
//	for chunk := range chunks {
//		answer, err := sequence.Infer(ctx, []kserve.Tensor{{Name: "audio", Datatype: "FP32", Shape: []int64{1, 512}, Data: chunk}})
//		...
//	}
//	answer, err := sequence.End(ctx, last)
//
// If a server dies, is restarted or loses the sequence, the sequence is continued from its saved state, and the requests
// since are sent again: the application sees a pause, and the same answers as without it. The model needs the parameter
// state_store.
//
// sequence.go has the type, replay.go how it goes on, errors.go what the errors of servers mean.
package stateful
