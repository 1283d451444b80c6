package localserver

import (
	"context"
	"fmt"
	"log/slog"
)

// warnings is a log whose warnings go to a function, which may be nil. What else is logged is dropped.
type warnings struct{ warn func(string) }

func (w warnings) Enabled(_ context.Context, level slog.Level) bool {
	return w.warn != nil && level >= slog.LevelWarn
}

// Handle adds the values to the text; those of the logger, such as the model's name, go without saying.
func (w warnings) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += fmt.Sprintf("; %s: %v", a.Key, a.Value)
		return true
	})
	w.warn(text)
	return nil
}

func (w warnings) WithAttrs([]slog.Attr) slog.Handler { return w }
func (w warnings) WithGroup(string) slog.Handler      { return w }
