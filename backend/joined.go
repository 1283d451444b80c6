package backend

import (
	"sync"

	"tritonstateful/internal/status"
)

// joined is the one Instance behind all instances that the server has of a model with free
// sequences. The dynamic batcher hands a batch to whichever is idle, so all of them need one
// table of sequences. Their batches run one after the other; see Execute. The zero value has no
// instance.
type joined struct {
	mu    sync.Mutex
	in    *Instance
	info  InstanceInfo // of the first
	users int
}

// NewInstance loads the model for one device. The caller must Close it. If sequences are free,
// it returns one Instance several times: then the memory of a batch that waits for another one
// is borrowed for longer, and the last Close frees everything.
func (m *Model) NewInstance(info InstanceInfo) (*Instance, error) {
	if m.config.Dynamic == nil {
		return m.open(info)
	}
	j := &m.joined
	j.mu.Lock() // the first one loads the model, while the others wait
	defer j.mu.Unlock()
	if j.in != nil {
		return j.in, j.join(info)
	}
	in, err := m.open(info)
	if err == nil && in.free {
		j.in, j.info, j.users = in, info, 1
	}
	return in, err
}

// join lets one more instance of the server use the Instance.
func (j *joined) join(info InstanceInfo) error {
	if info.Kind != j.info.Kind || info.Device != j.info.Device {
		return status.Errorf(status.InvalidArg, "loading instance %q: it is on another device than instance %q, which has the sequences: want one device in instance_group", info.Name, j.info.Name)
	}
	in := j.in
	in.ticker.mu.Lock() // a batch can be under way
	in.warmUps += in.model.config.WarmUpRequests()
	in.ticker.mu.Unlock()
	in.log.Info("another instance hands its batches to this one, because its sequences are free", "other", info.Name)
	if own, first := info.HostPolicy.String(), j.info.HostPolicy.String(); own != first {
		in.log.Warn("an instance that hands its batches to this one has another host policy: it counts only for the thread that Triton gives it; session and states are where the policy of this one has them",
			"other", info.Name, "policy", own, "this", first)
	}
	j.users++
	return nil
}

// leave reports whether an instance that the server closes was the last one.
func (j *joined) leave(in *Instance) (last bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.in != in {
		return true
	}
	if j.users--; j.users > 0 {
		return false
	}
	j.in = nil
	return true
}
