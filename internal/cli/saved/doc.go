// Package saved looks at what a state store has, for the command tritonstateful state.
//
// [List] and [Read] describe saved states, [Drop] deletes one, and [Export] and [Import] copy
// them: from one store to another, to a file, or to another namespace, which is what a new
// version of a model has.
//
// An export is a tar archive. Each member is the value of one sequence as docs/state-store.md
// describes it, and its name is the escaped key (see [memberName]).
//
// The servers of the store may run meanwhile. Read and List take nothing over; [Drop] does only
// if it is told to, and [Import] becomes the owner of each key that it writes.
package saved
