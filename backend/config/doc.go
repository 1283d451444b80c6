// Package config reads what a model's owner has asked for, without a look at the model:
// the part of Triton's model configuration that this backend serves ([Config]), and the
// backend's own settings in its parameters block ([Parameters]). Both are data, checked
// by themselves; package plan compares them with the tensors of the ONNX file.
//
//	cfg, err := config.Parse(text)                       // JSON, from Triton
//	params, warnings, err := config.ParseParameters(cfg.Parameters)
//	err = cfg.Refusals()                                 // what it asks for and cannot get
//
// The nouns:
//
//   - A [Pair] names a state by the input that it is read from and the output that it
//     is written to (parameter state_pairs, or the doc string of the model).
//   - An [Assignment] is one "NAME = VALUE" of a parameter that speaks of several
//     tensors. A * in NAME is a pattern: it stands for any text.
//
// Every fault is reported, not the first one only, and each with what would be right.
// Errors are of type status.Error with the code InvalidArg.
//
// A Config and Parameters are not changed after they are read, with one exception:
// [Lookup] marks an Assignment as used, which is why each plan works on its own
// [Parameters.Clone]. The package starts no goroutine and has no state.
package config
