package statebuffer

import (
	"cmp"
	"fmt"
	"time"
)

// LostError says that a request names a sequence that has no state.
type LostError struct {
	// Reason is NotLost for a sequence that was never seen, or ended, or is
	// forgotten.
	Reason LossReason
	// Ago is how long since it was lost.
	Ago time.Duration
	// Idle, Slots and Bytes are the limits that cost it its state: Idle with
	// Expired; otherwise Bytes, if that is not 0, or the number of slots.
	Idle  time.Duration
	Slots int
	Bytes int64
	// See Limits.
	Field, IdleField, Remedy string
}

func (e *LostError) Error() string {
	remedy := "; " + cmp.Or(e.Remedy, "begin it again with a START request")
	ago := e.Ago.Round(time.Millisecond)
	switch e.Reason {
	case Expired:
		return fmt.Sprintf("its state expired %v ago, after idling longer than %v (%s)%s", ago, e.Idle, e.IdleField, remedy)
	case Evicted:
		return fmt.Sprintf("its state was evicted %v ago to make room for another sequence: %s%s", ago, e.limit(), remedy)
	case Refused:
		return fmt.Sprintf("its START was refused %v ago because there was no free slot: %s%s", ago, e.limit(), remedy)
	case StartFailed:
		if e.Bytes > 0 {
			return fmt.Sprintf("its START failed %v ago, so it has no state: %s%s", ago, e.limit(), remedy)
		}
		return fmt.Sprintf("its START failed %v ago, so it has no state%s", ago, remedy)
	case Displaced:
		return fmt.Sprintf("its batch slot was given to another sequence %v ago, because the server had dropped it (idle or cancelled)%s", ago, remedy)
	case Replaced:
		return fmt.Sprintf("its state was dropped %v ago, because its ID began again before it had ended: %s; wait for the answer to END before using an ID again", ago, e.limit())
	case TakenOver:
		return fmt.Sprintf("it was taken over by another server %v ago; continue there, or take it back with a START request that has the parameter stateful_resume", ago)
	case Unsaved:
		return fmt.Sprintf("its state could not be saved %v ago, so it was dropped; resume what was saved before with a START request that has the parameter stateful_resume, or begin it again", ago)
	case Damaged:
		return fmt.Sprintf("its state could not be stored %v ago because writing to memory failed%s", ago, remedy)
	default:
		return "no such sequence is known" + remedy
	}
}

// limit is what there was too little of, with its parameter.
func (e *LostError) limit() string {
	if e.Bytes > 0 {
		return fmt.Sprintf("states may take at most %d bytes (max_state_memory_bytes)", e.Bytes)
	}
	return fmt.Sprintf("there are at most %d slots (%s)", e.Slots, e.Field)
}

// FullError says that a START found no free slot.
type FullError struct {
	Live, Total int
	// Bytes is the limit that keeps the store from allocating more slots, or 0.
	Bytes int64
	Field string // see Limits
}

func (e *FullError) Error() string {
	if e.Bytes > 0 {
		return fmt.Sprintf("too many simultaneous sequences: %d slots are taken, and more would exceed %d bytes (max_state_memory_bytes); try again later, end sequences that are done, or raise the limit", e.Live, e.Bytes)
	}
	return fmt.Sprintf("too many simultaneous sequences: %d of %d slots are taken; try again later, end sequences that are done, or raise %s", e.Live, e.Total, e.Field)
}

// BudgetError says that the varying states of a sequence would take the store
// beyond its limit.
type BudgetError struct {
	// Held is what the store has, More what the sequence asks for, Most the limit.
	Held, More, Most int64
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("the states take %d bytes and would grow by %d: at most %d bytes are allowed (max_state_memory_bytes); try again later, end sequences that are done, or raise the limit", e.Held, e.More, e.Most)
}

// FirstChunkError says that not even the first chunk is within the limit.
type FirstChunkError struct {
	Slots      int
	Each, Most int64  // bytes of a slot, and of all
	Lazy       bool   // further chunks follow
	Field      string // see Limits
}

func (e *FirstChunkError) Error() string {
	slots := e.Field
	if e.Lazy {
		slots = "initial_buffer_size"
	}
	return fmt.Sprintf("the first %d slots of %d bytes each are more than %d bytes (max_state_memory_bytes): lower %s, or raise the limit", e.Slots, e.Each, e.Most, slots)
}
