package procstat

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Status is what a process holds at a moment.
type Status struct {
	RSSBytes uint64
	Threads  uint64
	Files    uint64 // open file descriptors
}

// ReadStatus reads the status of one process, without its children.
func ReadStatus(pid int) (Status, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Status{}, fmt.Errorf("process %d: %w", pid, err)
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return Status{}, fmt.Errorf("files of process %d: %w", pid, err)
	}
	s := Status{Files: uint64(len(files))}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		number, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch {
		case err != nil:
		case name == "VmRSS":
			s.RSSBytes = number << 10
		case name == "Threads":
			s.Threads = number
		}
	}
	if s.RSSBytes == 0 || s.Threads == 0 {
		return Status{}, fmt.Errorf("process %d: its status has no VmRSS or Threads", pid)
	}
	return s, nil
}
