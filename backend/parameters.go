package backend

// Resume is what a START asks for with stateful_resume: whether its sequence goes on with the
// state that the state store has.
type Resume uint8

// What a START can ask for.
const (
	ResumeNone    Resume = iota // no: the sequence begins with the initial values
	ResumeTry                   // yes, if a state is saved; else as ResumeNone
	ResumeRequire               // yes; that nothing is saved is an error
)

// Parameters are the stateful_* parameters of a request. The zero value of a field, but -1 of
// Step, is that of a parameter that the request does not have.
type Parameters struct {
	Resume Resume
	// Step is the number of steps of its sequence that the client takes to be done before the
	// request, or -1.
	Step int64
	// Save: the answer is to wait until the state after the request is saved.
	Save bool
	// Keep: the END leaves what is saved (stateful_drop is false).
	Keep bool
	// Key names the sequence in the state store instead of its correlation ID; empty: none. It
	// has at most MaxKey bytes and is borrowed until Batch.Finish.
	Key string
}

// MaxKey is the number of bytes that Parameters.Key can have.
const MaxKey = 256

// AnswerParameters are the stateful_* parameters of an answer.
type AnswerParameters struct {
	Step      int64 // steps of the sequence that are done
	SavedStep int64 // steps of it that are in the state store
	Resumed   bool  // the sequence went on with a saved state at this request
}
