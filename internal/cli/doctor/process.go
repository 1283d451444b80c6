package doctor

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// LookAtProcess adds a tritonserver that runs on this machine, also in a container: its options,
// the libraries that it has loaded, and its C library. It needs the rights to see them.
func (s *Subject) LookAtProcess(pid int) error {
	folder := filepath.Join("/proc", strconv.Itoa(pid))
	line, err := os.ReadFile(filepath.Join(folder, "cmdline"))
	if err != nil {
		return fmt.Errorf("look at process %d: %w", pid, err)
	}
	maps, err := os.ReadFile(filepath.Join(folder, "maps"))
	if err != nil {
		return fmt.Errorf("look at the libraries of process %d: %w", pid, err)
	}
	environment, err := os.ReadFile(filepath.Join(folder, "environ"))
	if err != nil {
		return fmt.Errorf("look at the environment of process %d: %w", pid, err)
	}
	p := &Process{PID: pid, Env: map[string]string{}}
	for entry := range strings.SplitSeq(string(environment), "\x00") {
		if value, ok := strings.CutPrefix(entry, telemetryVariable+"="); ok {
			p.Env[telemetryVariable] = value
		}
	}
	root := filepath.Join(folder, "root")
	for _, path := range mapped(maps) {
		switch base := filepath.Base(path); {
		case base == "libc.so.6":
			if s.Libc, err = readLibc(filepath.Join(root, path), path); err != nil {
				return err
			}
		case strings.HasPrefix(base, "libonnxruntime") && !strings.HasPrefix(base, "libonnxruntime_providers"):
			p.Runtimes = append(p.Runtimes, path)
		case base == backendFiles[0]:
			libraries, err := readLibraries(filepath.Join(root, filepath.Dir(path)))
			if err != nil {
				return err
			}
			s.Libraries = append(s.Libraries, libraries...)
		}
	}
	s.Process = p
	args := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
	s.Commands = append(s.Commands, Command{Where: p.where(), Args: args})
	return nil
}

// mapped returns the files that a process has mapped, sorted.
func mapped(maps []byte) (paths []string) {
	for line := range bytes.Lines(maps) {
		if fields := strings.Fields(string(line)); len(fields) >= 6 && strings.HasPrefix(fields[5], "/") {
			paths = append(paths, fields[5])
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// lookAtOwnLibc finds the C library of this process, which is that of this machine.
func (s *Subject) lookAtOwnLibc() error {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("look for the C library: %w", err)
	}
	for _, path := range mapped(maps) {
		if filepath.Base(path) == "libc.so.6" {
			s.Libc, err = readLibc(path, path)
			return err
		}
	}
	return nil // linked without one, or another one than glibc
}
