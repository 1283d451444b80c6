package stateful

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	// ErrServersLost says that no server could continue the sequence in the attempts allowed. It wraps the last server's
	// error. The sequence can still be used: send the same request again.
	ErrServersLost = errors.New("no server could continue the sequence")
	// ErrUnsupported says that the server does not answer with stateful_step.
	ErrUnsupported = errors.New("the answer has no parameter stateful_step: the model's backend does not count steps")
	// ErrEnded says that the sequence has ended or its state is lost.
	ErrEnded = errors.New("the sequence has ended: begin another one")
)

// StateLostError says that the saved state is older than the requests that are still kept, or that there is none. The
// sequence has to begin anew.
type StateLostError struct {
	Resumed int64 // steps that the state contains which the server has
	Kept    int64 // the first step of which the request is still kept
}

func (e *StateLostError) Error() string {
	return fmt.Sprintf("the server can only continue at step %d, and requests before step %d are no longer kept", e.Resumed, e.Kept)
}

// AnswerLostError says that a step was done, but that its answer was lost, and that no earlier state is left to repeat it: the
// store has lost what it had. The next request continues after it.
type AnswerLostError struct{ Step int64 }

func (e *AnswerLostError) Error() string {
	return fmt.Sprintf("step %d was done, but its answer was lost with the server", e.Step)
}

// WrongStepError says that an answer is not that of the step that was asked for: another client uses the same key.
type WrongStepError struct{ Done, Want int64 }

func (e *WrongStepError) Error() string {
	return fmt.Sprintf("the server has done %d steps of the sequence, want %d", e.Done, e.Want)
}

// kind is what an error of a server means for the sequence.
type kind int

const (
	ofRequest  kind = iota // the request itself is wrong
	ofStep                 // the server expects another step
	ofSequence             // the server has no state of the sequence
	ofServer               // the server is gone, going or full: try another
)

var (
	expectedStep = regexp.MustCompile(`expected step (\d+)`)
	sequenceLost = regexp.MustCompile(`must specify the START flag|begin it again with a START request|no such sequence is known|taken over`)
	serverLost   = regexp.MustCompile(`too many simultaneous sequences|unknown model|not ready|stopped accepting|shutting down|` +
		`is stopping|is unavailable|[Cc]onnection (reset|refused)|RST_STREAM|GOAWAY|upstream`)
)

// classify says what the error of a call means. expected is for ofStep only.
func classify(err error) (k kind, expected int64) {
	s, _ := status.FromError(err)
	if found := expectedStep.FindStringSubmatch(s.Message()); found != nil {
		if n, err := strconv.ParseInt(found[1], 10, 64); err == nil {
			return ofStep, n
		}
	}
	switch {
	case sequenceLost.MatchString(s.Message()):
		return ofSequence, 0
	case s.Code() == codes.Unavailable, s.Code() == codes.DeadlineExceeded, s.Code() == codes.Canceled,
		serverLost.MatchString(s.Message()):
		return ofServer, 0
	}
	return ofRequest, 0
}
