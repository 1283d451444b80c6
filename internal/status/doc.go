// Package status holds the error that every other package returns where a client
// or an operator of the server reads it: an [Error] has a [Code], which the server
// passes on next to the text.
//
// It imports nothing of this module and has no state.
package status
