package backend

import (
	"context"
	"log/slog"

	"tritonstateful/backend/config"
)

// verbosity decides what of an instance's running commentary is logged, and where:
// logging_level switches it off, on, or on with details, and
// batch_info_logging_level moves the line about each batch. Warnings and errors
// do not pass here; they are always logged.
type verbosity struct {
	log *slog.Logger
	// info and details say whether lines of these kinds are wanted at all.
	info, details bool
	batchLevel    slog.Level
}

func newVerbosity(log *slog.Logger, p *config.Parameters) verbosity {
	return verbosity{log: log, info: p.Log >= config.LogInfo, details: p.Log >= config.LogVerbose, batchLevel: batchLevel(p)}
}

// batchLevel is the level of the line about each batch. It is verbose unless the
// configuration sets a level of logging; then the rule is that of NVIDIA's
// backend, in which a batch_info_logging_level of NONE does not silence the line
// but reverses the choice.
func batchLevel(p *config.Parameters) slog.Level {
	up := p.Log >= p.BatchInfo
	if p.BatchInfo == config.LogNone {
		up = p.Log <= config.LogInfo
	}
	if up && p.LogGiven {
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

func (v *verbosity) on(wanted bool, level slog.Level) bool {
	return wanted && v.log.Enabled(context.Background(), level)
}

// batch logs that n requests begin to run.
func (v *verbosity) batch(n int) {
	if v.on(true, v.batchLevel) {
		v.log.Log(context.Background(), v.batchLevel, "running inference", "requests", n)
	}
}

// reset logs that a sequence starts.
func (v *verbosity) reset(id SequenceID) {
	if v.on(v.info, slog.LevelDebug) {
		v.log.Debug("resetting the states of a sequence", "sequence", id.String())
	}
}

// restored logs that a sequence goes on with its saved state.
func (v *verbosity) restored(id SequenceID, steps uint64) {
	if v.on(v.info, slog.LevelDebug) {
		v.log.Debug("restoring the states of a sequence", "sequence", id.String(), "steps", steps)
	}
}

// endNotInferred logs that an END was answered without a run.
func (v *verbosity) endNotInferred(id SequenceID) {
	if v.on(v.info, slog.LevelDebug) {
		v.log.Debug("ending a sequence without inference", "sequence", id.String())
	}
}
