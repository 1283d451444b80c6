// Package checkpoint saves the states of an instance's sequences in a store, while it serves,
// and gets them back. It decides what is saved when; package statestore knows the stores, and
// package statebuffer has the states.
//
// The nouns:
//
//   - An [Entry] is what a [Saver] knows of one sequence, from its START on. It is
//     statebuffer's Sequence.Attached.
//   - An entry is dirty while steps of it are not saved, and ready when the store is to be
//     called for it: to begin, to save, to drop.
//   - An END ends an entry: the store marks what is saved as that of an ended sequence, see
//     statestore's Store.End, or keeps it if the sequence pauses.
//   - A job is one call of the store for an entry. An entry has one at a time.
//   - An epoch says who owns a sequence in the store. Whoever begins or restores it gets a
//     later one, and whoever has an earlier one is fenced: the store refuses what it saves.
//
// The path of a step: the execution calls [Saver.Stepped] after the commit. That makes the entry
// dirty, and ready when the policy says so. When the batch is over, the goroutine of the
// saver takes snapshots, under the lock of the instance, of ready entries in their order, as long as
// there is room for jobs. So what is saved is always the newest committed state, memory is
// bounded, and an instance whose store is slow or down serves as before. Other goroutines encode
// the snapshots and call the store, one job at a time each (workers.go).
//
// All methods may be called by any goroutine unless they say otherwise.
package checkpoint
