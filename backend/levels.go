package backend

import (
	"context"
	"log/slog"

	"tritonstateful/backend/config"
)

// levels decides what of an instance's running commentary is logged, and where:
// logging_level switches it off, on, or on with details, and
// batch_info_logging_level moves the line about each batch. Warnings and errors
// do not pass here; they are always logged.
type levels struct {
	log *slog.Logger
	// info and details tell whether lines of these kinds are wanted at all.
	info, details bool
	batchLevel    slog.Level
}

func newLevels(log *slog.Logger, p *config.Parameters) levels {
	return levels{log: log, info: p.Log >= config.LogInfo, details: p.Log >= config.LogVerbose, batchLevel: batchLevel(p)}
}

// batchLevel is the level of the line about each batch. It is verbose unless the
// configuration says something of logging; then the rule is that of NVIDIA's
// backend, in which a batch_info_logging_level of NONE does not silence the line
// but turns the choice around.
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

func (l *levels) on(wanted bool, level slog.Level) bool {
	return wanted && l.log.Enabled(context.Background(), level)
}

// batch tells that n requests begin to run.
func (l *levels) batch(n int) {
	if l.on(true, l.batchLevel) {
		l.log.Log(context.Background(), l.batchLevel, "running inference", "requests", n)
	}
}

// reset tells that a sequence starts.
func (l *levels) reset(id SequenceID) {
	if l.on(l.info, slog.LevelDebug) {
		l.log.Debug("resetting the states of a sequence", "sequence", id.String())
	}
}

// endNotInferred tells that an END was answered without a run.
func (l *levels) endNotInferred(id SequenceID) {
	if l.on(l.info, slog.LevelDebug) {
		l.log.Debug("ending a sequence without inference", "sequence", id.String())
	}
}
