package cli

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"tritonstateful/clients/go/load"
)

// killOptions are the flags of load that kill servers.
type killOptions struct {
	kill, restart string
	every         time.Duration
}

// A drill is what a kill did, as JSON.
type drill struct {
	At      float64 `json:"at_s"`            // since the begin of the measurement
	Slowest float64 `json:"slowest_ms"`      // the greatest latency of a step that was answered after it, and before the next one
	Error   string  `json:"error,omitempty"` // why it could not be done
}

// drills kills servers while a load runs.
type drills struct {
	killOptions
	single bool // kill once

	mu   sync.Mutex
	from time.Time // of the measurement
	done []drill
	at   []time.Time
}

// newDrills checks the flags; nil says that nothing is to be killed.
func newDrills(o *killOptions, duration time.Duration) (*drills, error) {
	_, err := strconv.Atoi(o.kill)
	isProcess := err == nil
	switch {
	case o.kill == "" && (o.restart != "" || o.every != 0):
		return nil, errors.New("--kill-every and --restart go with --kill")
	case o.kill == "":
		return nil, nil
	case o.every < 0:
		return nil, fmt.Errorf("--kill-every is %v: want a time, such as 5s", o.every)
	case isProcess && o.every > 0:
		return nil, fmt.Errorf("--kill %s is a process, which can be killed once: want a command with --kill-every, such as 'pkill -9 tritonserver'", o.kill)
	}
	d := &drills{killOptions: *o}
	if d.every == 0 {
		d.every, d.single = duration/2, true
	}
	return d, nil
}

// start begins to kill, in a load that begins now. stop waits until the last command has ended.
func (d *drills) start(ctx context.Context, p *load.Paced) (stop func()) {
	if d == nil {
		return func() {}
	}
	p.Answered = d.answered
	ctx, end := context.WithDeadline(ctx, time.Now().Add(p.Warmup+p.Duration))
	var running sync.WaitGroup
	running.Go(func() { d.run(ctx, p.Warmup) })
	return func() {
		end()
		running.Wait()
	}
}

// results are what the kills did.
func (d *drills) results() []drill {
	if d == nil {
		return []drill{}
	}
	return append([]drill{}, d.done...)
}

// run kills and restarts until ctx ends, which is when the measurement does.
func (d *drills) run(ctx context.Context, warmup time.Duration) {
	d.mu.Lock()
	d.from = time.Now().Add(warmup)
	d.mu.Unlock()
	for next := d.from.Add(d.every); len(d.done) == 0 || !d.single; next = next.Add(d.every) {
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(next)):
		}
		if ctx.Err() != nil {
			return
		}
		d.mu.Lock()
		i, now := len(d.done), time.Now()
		d.at, d.done = append(d.at, now), append(d.done, drill{At: now.Sub(d.from).Seconds()})
		d.mu.Unlock()
		if err := d.once(ctx); err != nil {
			d.mu.Lock()
			d.done[i].Error = err.Error()
			d.mu.Unlock()
		}
	}
}

// once kills a server, and starts it again.
func (d *drills) once(ctx context.Context) error {
	if pid, err := strconv.Atoi(d.kill); err == nil {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return fmt.Errorf("kill process %d: %w", pid, err)
		}
	} else if err := shell(ctx, d.kill); err != nil {
		return err
	}
	if d.restart == "" {
		return nil
	}
	return shell(ctx, d.restart)
}

// grace is how long a command may run after the load.
const grace = 10 * time.Second

// shell runs a command, in a process group of its own: an interrupt of the load does not end a server that it starts. It is
// also run to its end if ctx has ended, so that a server that was killed is started again.
func shell(ctx context.Context, command string) error {
	run := exec.Command("sh", "-c", command)
	run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := run.Start(); err != nil {
		return fmt.Errorf("run %q: %w", command, err)
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-ended:
		case <-time.After(grace):
			_ = syscall.Kill(-run.Process.Pid, syscall.SIGKILL) // if it is gone, all is well
		}
	})
	defer stop()
	err := run.Wait()
	close(ended)
	if err != nil {
		return fmt.Errorf("run %q: %w", command, err)
	}
	return nil
}

// answered is called for each step of the measurement.
func (d *drills) answered(due time.Time, took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := len(d.at) - 1; i >= 0; i-- {
		if due.Add(took).After(d.at[i]) {
			d.done[i].Slowest = max(d.done[i].Slowest, ms(took))
			return
		}
	}
}
