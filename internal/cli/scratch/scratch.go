package scratch

import (
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

// Folder makes a folder whose name begins like that. The caller must call remove. An interrupt removes the folder and ends the
// process by the same signal.
func Folder(name string) (path string, remove func(), err error) {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if path, err = os.MkdirTemp("", name); err != nil {
		signal.Stop(interrupts)
		return "", nil, err
	}
	done := make(chan struct{})
	go func() {
		select {
		case <-done:
		case which := <-interrupts:
			end(path, which.(syscall.Signal))
		}
	}()
	return path, func() {
		signal.Stop(interrupts)
		close(done)
		_ = os.RemoveAll(path) // a folder for temporary files
	}, nil
}

// end removes a folder and ends the process by a signal. A shell takes the place of the process first: what still runs in it,
// such as a backend that saves states, would make the folder again.
func end(path string, which syscall.Signal) {
	_ = syscall.Exec("/bin/sh", []string{"sh", "-c", `rm -rf "$1"; kill -$2 $$`, "sh", path, strconv.Itoa(int(which))}, os.Environ())
	_ = os.RemoveAll(path) // without a shell
	signal.Reset(which)
	_ = syscall.Kill(os.Getpid(), which)
}
