// Package procstat reads what a Linux process and its descendants have used so far. Descendants count, because some
// servers compute in child processes (Triton's Python backend does).
package procstat

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// tick is the unit of times in /proc: USER_HZ, which Linux fixes at 100 a second for every architecture that Triton
// runs on.
const tick = 10 * time.Millisecond

// Usage is what a tree of processes has used. Memory that its processes share is counted once for each of them.
type Usage struct {
	CPU      time.Duration // user and system time
	RSSBytes uint64        // resident memory now
	Children int           // processes besides the root
}

// process is the part of /proc/PID/stat that we use.
type process struct {
	pid, parent int
	cpu         time.Duration
	rssPages    uint64
}

// ReadTree sums the usage of the process pid and all its living descendants. Times of children that have ended are
// left out.
func ReadTree(pid int) (Usage, error) {
	processes, err := readAll()
	if err != nil {
		return Usage{}, err
	}
	if _, alive := processes[pid]; !alive {
		return Usage{}, fmt.Errorf("process %d: not running", pid)
	}
	usage := Usage{Children: -1} // the root itself is no child
	for _, p := range processes {
		if descends(p, pid, processes) {
			usage.CPU += p.cpu
			usage.RSSBytes += p.rssPages * uint64(os.Getpagesize())
			usage.Children++
		}
	}
	return usage, nil
}

func descends(p process, root int, processes map[int]process) bool {
	for {
		if p.pid == root {
			return true
		}
		parent, known := processes[p.parent]
		if !known {
			return false
		}
		p = parent
	}
}

func readAll() (map[int]process, error) {
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	processes := make(map[int]process, len(paths))
	for _, path := range paths {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended since the listing
		}
		p, err := parse(stat)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		processes[p.pid] = p
	}
	return processes, nil
}

// parse reads a line of /proc/PID/stat: "pid (name) state ppid ...". The name may hold blanks and parentheses, so the
// fields are counted from the last parenthesis (proc(5) numbers the state 3).
func parse(stat []byte) (process, error) {
	const (
		firstField  = 3
		parentField = 4
		userField   = 14
		systemField = 15
		rssField    = 24
	)
	head, tail := bytes.IndexByte(stat, ' '), bytes.LastIndexByte(stat, ')')
	if head < 0 || tail < 0 {
		return process{}, fmt.Errorf("no process name in %q", stat)
	}
	fields := bytes.Fields(stat[tail+1:])
	if len(fields) <= rssField-firstField {
		return process{}, fmt.Errorf("only %d fields in %q", len(fields), stat)
	}
	texts := [][]byte{stat[:head], fields[parentField-firstField], fields[userField-firstField],
		fields[systemField-firstField], fields[rssField-firstField]}
	var values [5]uint64
	for i, text := range texts {
		value, err := strconv.ParseUint(string(text), 10, 64)
		if err != nil {
			return process{}, fmt.Errorf("not a number in %q: %w", stat, err)
		}
		values[i] = value
	}
	return process{
		pid:      int(values[0]),
		parent:   int(values[1]),
		cpu:      time.Duration(values[2]+values[3]) * tick,
		rssPages: values[4],
	}, nil
}
