package checkpoint

import (
	"time"

	"tritonstateful/backend/config"
	"tritonstateful/internal/statestore"
)

// Policy is when states are saved, and how.
type Policy struct {
	config.Checkpoint
	// TTL is how long a saved state is kept after it was last written.
	TTL time.Duration
	// Model identifies the model file, and Layout what its states are.
	Model, Layout [8]byte
	// States are the states in the order of statebuffer's: their names and the types that
	// they are stored in.
	States []statestore.Tensor
}

// Limits of what is under way at a time.
const (
	maxJobs  = 16
	maxBytes = 64 << 20 // in snapshots; one is always allowed
	// maxEncoding is how many bytes are encoded and sent at a time; one value is always allowed.
	maxEncoding = 1 << 20
)

// How long the store is left alone after it failed: doubled with each failure in a row.
const (
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 2 * time.Second
)

// flushTime bounds how long Close waits for the store.
const flushTime = 10 * time.Second

// automatic reports whether steps become due by themselves.
func (p *Policy) automatic() bool {
	return p.When == config.EverySteps || p.When == config.EveryInterval || p.When == config.EveryStep
}

// writes reports whether anything is ever saved.
func (p *Policy) writes() bool { return p.When != config.Never }
