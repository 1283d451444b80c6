// Package offline finds out what the backend makes of a model without a server: the completed configuration, the plan, and
// the questions that it cannot answer itself. It uses what a load in Triton uses, backend/plan/planner, so that both say
// the same.
//
// [Read] finds the files of a model: an ONNX file with or without a config.pbtxt, or a model's folder as in a model
// repository. [Files.Look] opens the ONNX file, makes the plan, and loads the model once as a server would (trial.go):
//
//	files, err := offline.Read("model_repository/lstm", "")
//	model, err := files.Look(runtime.Open)
//	if model.Plan == nil { fmt.Println(model.Questions) }
package offline
