// Package localserver serves a model in this process, with package backend as in Triton, and without Triton: requests are Go
// values, and a caller decides which of them come in one batch. Nothing of the backend is simulated, so what is seen here is
// what a server does. A tick between batches and held, parked and resumed requests work as in Triton.
//
//	in, err := localserver.Load(info, nil, runtime.Open)
//	defer in.Close()
//	answers := in.Run([]localserver.Request{{ID: 1, Start: true, Inputs: inputs}})
//
// One goroutine uses an Instance.
package localserver
