package main

// #include <stdlib.h>
// #include "table.h"
import "C"

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"unsafe"
)

// logHandler is a slog.Handler that writes to Triton's log: "message key=value".
// Debug is Triton's verbose level. Whether a level is on is asked of Triton for
// every record, because a client can change it while the server runs.
type logHandler struct {
	attrs  string // those of With, as written in a line: " key=value"
	prefix string // the open groups: "group."
}

func newLog() *slog.Logger { return slog.New(logHandler{}) }

func tritonLevel(level slog.Level) C.TRITONSERVER_LogLevel {
	switch {
	case level >= slog.LevelError:
		return C.TRITONSERVER_LOG_ERROR
	case level >= slog.LevelWarn:
		return C.TRITONSERVER_LOG_WARN
	case level >= slog.LevelInfo:
		return C.TRITONSERVER_LOG_INFO
	default:
		return C.TRITONSERVER_LOG_VERBOSE
	}
}

// Enabled is TRITONSERVER_LogIsEnabled.
func (h logHandler) Enabled(_ context.Context, level slog.Level) bool {
	return bool(C.log_is_enabled(tritonLevel(level)))
}

// Handle is TRITONSERVER_LogMessage.
func (h logHandler) Handle(_ context.Context, record slog.Record) error {
	var line strings.Builder
	line.WriteString(record.Message)
	line.WriteString(h.attrs)
	record.Attrs(func(attr slog.Attr) bool {
		appendAttr(&line, h.prefix, attr)
		return true
	})
	source, _ := runtime.CallersFrames([]uintptr{record.PC}).Next()
	file, text := C.CString(source.File), C.CString(line.String())
	defer C.free(unsafe.Pointer(file))
	defer C.free(unsafe.Pointer(text))
	return takeError(C.log_message(tritonLevel(record.Level), file, C.int(source.Line), text))
}

// WithAttrs implements slog.Handler.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var more strings.Builder
	for _, attr := range attrs {
		appendAttr(&more, h.prefix, attr)
	}
	h.attrs += more.String()
	return h
}

// WithGroup implements slog.Handler.
func (h logHandler) WithGroup(name string) slog.Handler {
	if name != "" {
		h.prefix += name + "."
	}
	return h
}

func appendAttr(line *strings.Builder, prefix string, attr slog.Attr) {
	value := attr.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		if attr.Key != "" {
			prefix += attr.Key + "."
		}
		for _, member := range value.Group() {
			appendAttr(line, prefix, member)
		}
		return
	}
	if attr.Equal(slog.Attr{}) {
		return
	}
	text := value.String()
	if strings.ContainsAny(text, " \t\n\"=") {
		text = fmt.Sprintf("%q", text)
	}
	fmt.Fprintf(line, " %s%s=%s", prefix, attr.Key, text)
}
