// Package scaffold makes the folder of a model in a model repository: a config.pbtxt that says what the backend has found
// out, with the reasons as comments, and the model file with its external data.
//
//	written, err := scaffold.Configure(model, scaffold.Options{Scheduler: scaffold.Oldest})
//	files, err := scaffold.Write(model.Files, "model_repository", written, false)
package scaffold
