package doctor

import (
	"fmt"
	"path/filepath"
	"strings"

	"tritonstateful/internal/glibc"
)

const needsProcess = "the process of a server on this machine: --pid"

// ourRuntime is the name of the ONNX Runtime that this backend brings.
const ourRuntime = "libonnxruntime_stateful.so"

// severalRuntimes: each has threads and memory of its own, and two of one name get mixed up.
func severalRuntimes(s *Subject) ([]Finding, string) {
	if s.Process == nil {
		return nil, needsProcess
	}
	if len(s.Process.Runtimes) < 2 {
		return nil, ""
	}
	f := Finding{
		Severity: Note, Where: s.Process.where(),
		Evidence: "loaded are " + strings.Join(s.Process.Runtimes, ", ") + ": each has its own threads and memory",
		Remedy:   "serve all ONNX models with one backend: backend: \"stateful\" also serves models without states (docs/migrating-from-onnxruntime-backend.md)",
	}
	if others := otherRuntimes(s.Process); len(others) > 1 {
		f.Severity = Problem
		f.Evidence = fmt.Sprintf("loaded are %s: the linker knows them by one name, so a backend may get another version than its own", strings.Join(others, ", "))
		f.Remedy = "remove the backend that is not needed, or the LD_LIBRARY_PATH or LD_PRELOAD that brings the second one"
	}
	return []Finding{f}, ""
}

func otherRuntimes(p *Process) (others []string) {
	for _, file := range p.Runtimes {
		if filepath.Base(file) != ourRuntime {
			others = append(others, file)
		}
	}
	return others
}

// telemetry: builds of ONNX Runtime for Linux report since 1.29. That of this backend does not.
func telemetry(s *Subject) ([]Finding, string) {
	if s.Process == nil {
		return nil, needsProcess
	}
	if isTrue(s.Process.Env[telemetryVariable]) {
		return nil, ""
	}
	var found []Finding
	for _, file := range otherRuntimes(s.Process) {
		if reports(file) {
			found = append(found, Finding{
				Severity: Note, Where: s.Process.where(),
				Evidence: fmt.Sprintf("%s has telemetry, and %s is not set: it writes a device ID and sends events", file, telemetryVariable),
				Remedy:   telemetryVariable + "=1 in the environment of the server (the ONNX Runtime of this backend is always quiet)",
			})
		}
	}
	return found, ""
}

// oldLibrary: symbols of a later version than the system's cannot be resolved.
func oldLibrary(s *Subject) (found []Finding, unseen string) {
	if s.Libc == nil || len(s.Libraries) == 0 {
		return nil, "the folder of the installed backend (libtriton_stateful.so), on the machine of the server"
	}
	for i := range s.Libraries {
		if l := &s.Libraries[i]; glibc.Older(s.Libc.Version, l.Needs) {
			found = append(found, Finding{
				Severity: Problem, Where: l.Path,
				Evidence: fmt.Sprintf("it needs glibc %s, and %s is %s", l.Needs, s.Libc.Path, s.Libc.Version),
				Remedy:   "an image with that glibc or a later one: Ubuntu 22.04, Debian 12, RHEL 9 and later",
			})
		}
	}
	return found, ""
}
