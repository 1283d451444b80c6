// Package statestore keeps the states of sequences outside of the server, so that
// another server can continue a sequence when this one is gone. It is pure Go and
// knows neither Triton nor ONNX Runtime; it is given bytes, and keeps them under a key.
//
// [Open] returns the [Store] of a URL: a folder (file.go) or a Valkey or Redis server
// (valkey.go). [Key] is the key of a sequence, a [Writer] lays out the value to be
// saved, and [Parse] reads it. docs/state-store.md is the page for operators.
//
//	w.Begin(totals, tensors)         // once a save: lays the value out
//	copy(w.Tensor(0), state)         // each tensor
//	value := w.Seal(Head{Epoch: epoch, Step: 12, ...})
//	err := store.Save(ctx, key, epoch, value, ttl)
//
// # Epochs
//
// Several servers may think that a sequence is theirs: one was stopped or cut off, and
// another took over. So each key has an owner, which is a number, the epoch. Whoever
// begins a sequence or takes it over gets a higher epoch than any before ([Store.Begin],
// [Store.Take]), and what comes with a lower one is refused ([FencedError]).
//
// A new epoch is the larger of the previous one plus 1 and the store's clock in
// microseconds. So epochs grow even if the store has forgotten the key, because it
// expired or because the store was emptied, as long as its clock is not set back. A key
// without an epoch accepts any owner: after the store was emptied the server that serves
// the sequence saves again, and from then on older ones are refused as before.
//
// A server that could not reach the store for a while may begin a sequence late, when its
// client has long moved on. So Begin does not replace an owner that is later than the
// sequence, by the store's clock.
//
// [Store.Drop] deletes the state and keeps the epoch for a while (see dropped), so that
// a server that was stopped cannot save a sequence that has ended since.
//
// # The value before
//
// A store keeps two values of a key: the newest, and the newest of the others with fewer
// steps. A server can be killed after a step was saved and before its answer was sent; the
// client asks for the step again, and needs the state before it. So [Store.Take] is told how
// many steps the client has answers of. A value with more is deleted, as the sequence goes on
// from the one before, in another way perhaps. Both values end with their key, and Begin and
// Drop delete both. [Store.End] leaves one for some seconds, for a client that did not get the
// answer to the END.
//
// # The value
//
// All numbers are little-endian. The value begins with a head of 64 bytes:
//
//	offset  size  content
//	     0     4  "TSST"
//	     4     2  format, 1
//	     6     2  flags, 0
//	     8     8  epoch of the server that saved it
//	    16     8  number of steps done
//	    24     8  time of the save, signed, in nanoseconds since 1970 (UTC)
//	    32     8  hash of the model
//	    40     8  hash of the layout: which states there are, and their types and shapes
//	    48     8  number of bytes after the head
//	    56     4  CRC-32C (Castagnoli) of the whole value without these four bytes
//	    60     4  0
//
// Then comes the table:
//
//	64     4  number of counters
//	68     4  number of tensors
//	72  8×n   the counters, unsigned
//	          for each tensor:
//	       8    offset of its data from the beginning of the value, a multiple of 64
//	       8    size of its data in bytes
//	       2    length of its name
//	       2    length of the name of its type
//	       4    number of axes
//	     8×n    extent of each axis
//	       n    name of the state
//	       n    name of the type as in Triton's protocol, such as FP32
//	     0–7    zeros up to a multiple of 8
//
// The data of the tensors follow in the order of the table, each at the next multiple of
// 64 with zeros before it. They are the elements as they lie in memory, the last axis
// innermost. The shape is that of one sequence: the extent along the batch axis is 1.
// The value ends with the last tensor's last byte, or with the table.
//
// # Errors and concurrency
//
// Methods of a Store may be called from any goroutine. Errors say what was being done,
// and to which store, without a password. A [PermanentError] does not go away by itself;
// other errors may, also those of a Store that never was reachable: it connects, and
// connects again, when it is used.
package statestore
