package backend

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"tritonstateful/backend/checkpoint"
	"tritonstateful/backend/config"
	"tritonstateful/internal/statestore"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// States outlive the server where the parameter state_store names a store: package checkpoint
// saves them there and gets them back.

// storeUse is the store of a model, which its instances share. The zero value is ready.
type storeUse struct {
	mu     sync.Mutex
	store  statestore.Store
	shared int // instances that use it
}

// openStore returns the store of the model for one instance, which closes it by closeStore. A
// store that cannot be reached now is a warning: sequences are served without it.
func (m *Model) openStore() (statestore.Store, error) {
	u := &m.store
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.store == nil {
		open := statestore.Open
		if m.server.OpenStore != nil {
			open = m.server.OpenStore
		}
		store, err := open(m.params.Checkpoint.Store)
		if err != nil {
			return nil, status.Errorf(status.InvalidArg, "parameter state_store: %w", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), m.params.Checkpoint.Timeout)
		defer cancel()
		err = store.Check(ctx)
		if permanent := (*statestore.PermanentError)(nil); errors.As(err, &permanent) {
			store.Close()
			return nil, status.Errorf(status.InvalidArg, "parameter state_store: %w", err)
		}
		if err != nil {
			m.log.Warn("the state store cannot be reached now; sequences are served all the same, and saved when it can", "error", err)
		}
		u.store = store
	}
	u.shared++
	return u.store, nil
}

// closeStore ends the use of the store by one instance.
func (m *Model) closeStore() {
	u := &m.store
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.shared--; u.shared == 0 {
		u.store.Close()
		u.store = nil
	}
}

// openSaver begins to save the states of the instance, if there is a store. The store of
// slots is there.
func (in *Instance) openSaver() error {
	c := &in.model.params.Checkpoint
	if c.Store == "" {
		return nil
	}
	if !in.keeps {
		in.log.Warn("parameter state_store has no effect: the model has no sequences whose states are kept")
		return nil
	}
	policy, err := in.policy()
	if err != nil {
		return err
	}
	store, err := in.model.openStore()
	if err != nil {
		return err
	}
	in.onMiss = in.free && in.resumesOn() == config.ResumeOnMiss
	in.saver = checkpoint.New(checkpoint.Options{Store: store, Policy: policy, Source: in, Clock: in.server().Clock, Log: in.log})
	in.resuming = map[statebuffer.Key]*resuming{}
	in.log.Info("states are saved", "store", c.Store, "checkpoint", in.model.params.Settings["checkpoint"], "kept", policy.TTL,
		"model", fmt.Sprintf("%x", policy.Model), "layout", fmt.Sprintf("%x", policy.Layout))
	return nil
}

// closeSaver saves what is not saved yet, for a bounded time.
func (in *Instance) closeSaver() {
	if in.saver != nil {
		in.saver.Close()
		in.saver = nil
		in.model.closeStore()
	}
}

// policy is when and how the states of the instance are saved.
func (in *Instance) policy() (p checkpoint.Policy, err error) {
	m := in.model
	p = checkpoint.Policy{Checkpoint: m.params.Checkpoint, TTL: m.params.Checkpoint.SavedFor(in.idleLimit())}
	layout := sha256.New()
	narrowed := p.Precision != config.SaveExact
	note := func(name string, dtype, stored tensor.DType, shape tensor.Shape, how any) error {
		if dtype.Size() == 0 {
			return status.Errorf(status.Unsupported, "parameter state_store: state %q is of type %v, which cannot be saved: want elements of a fixed size, or state_store = none", name, dtype)
		}
		if narrowed && dtype != tensor.FP32 && dtype != tensor.FP16 && dtype != tensor.BF16 {
			return status.Errorf(status.InvalidArg, "parameter checkpoint_precision: state %q is of type %v: want exact, because only FP32 is narrowed", name, dtype)
		}
		fmt.Fprintf(layout, "%q %v %v %v\n", name, dtype, shape, how)
		p.States = append(p.States, statestore.Tensor{Name: name, DType: stored})
		return nil
	}
	for i := range in.plan.States {
		s := &in.plan.States[i]
		stored := s.DType
		if m.params.Conversion(s.DType) == statebuffer.Half {
			stored = tensor.FP16
		}
		err = errors.Join(err, note(s.Input, s.DType, stored, s.Dims, s.Axis))
	}
	for i := range in.plan.Varying {
		s := &in.plan.Varying[i]
		err = errors.Join(err, note(s.Input, s.DType, s.DType, s.Dims, fmt.Sprint(s.Axis, s.Update, s.AppendAxis)))
	}
	for i := range in.plan.Lengths {
		fmt.Fprintf(layout, "%q\n", in.plan.Lengths[i].Name)
	}
	copy(p.Layout[:], layout.Sum(nil))
	if err == nil {
		p.Model, err = m.hash()
	}
	return p, err
}

// ownFiles are the files of this backend. They can lie next to the model, and an update of
// the backend does not change the model.
var ownFiles = []string{"libtriton_stateful.so", "libtriton_stateful_go.so", "libonnxruntime_stateful.so", "manifest.json"}

// modelHash identifies a model file, together with the files next to it, which may have its
// weights.
func modelHash(path string) (hash [8]byte, err error) {
	all := sha256.New()
	folder := filepath.Dir(path)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return hash, status.Errorf(status.Internal, "reading the model's folder: %w", err)
	}
	for _, entry := range entries { // sorted by name
		if slices.Contains(ownFiles, entry.Name()) {
			continue
		}
		if err := hashFile(all, filepath.Join(folder, entry.Name())); err != nil {
			return hash, status.Errorf(status.Internal, "reading the model: %w", err)
		}
	}
	copy(hash[:], all.Sum(nil))
	return hash, nil
}

// hashFile adds a file, or none if it is a folder.
func hashFile(to io.Writer, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	_, err = io.Copy(to, file)
	return err
}

// storeKey is the key of a sequence in the store: by its ID, or by what a request names.
func (in *Instance) storeKey(r *Request) string {
	namespace := in.model.params.Checkpoint.Namespace
	if namespace == "" {
		namespace = fmt.Sprintf("%s/%d", in.model.info.Name, in.model.info.Version)
	}
	id := r.Sequence.String()
	if r.Parameters != nil && r.Parameters.Key != "" {
		id = "@" + r.Parameters.Key
	}
	return statestore.Key(namespace, id)
}

// Locked implements checkpoint.Source.
func (in *Instance) Locked(f func()) {
	in.ticker.mu.Lock()
	defer in.ticker.mu.Unlock()
	f()
}

// Snapshot implements checkpoint.Source.
func (in *Instance) Snapshot(q *statebuffer.Sequence, to *statebuffer.Snapshot) error {
	return in.store.Snapshot(q, to)
}

// Lose implements checkpoint.Source.
func (in *Instance) Lose(q *statebuffer.Sequence, reason statebuffer.LossReason) {
	in.store.Lose(q, reason, in.server().Clock())
}

// Forget implements checkpoint.Source.
func (in *Instance) Forget(q *statebuffer.Sequence) { in.store.Finish(q) }

// measureSaver notes the metrics of what is saved and restored. It returns how many elements
// were clamped.
func (in *Instance) measureSaver() (saturated uint64) {
	if in.saver == nil {
		return 0
	}
	m := &in.meter
	c, backlog := in.saver.Measure(m.seconds)
	m.seconds = c.Seconds
	for _, took := range c.Seconds {
		m.observe(MetricStoreCall, took)
	}
	m.observe(MetricUnsaved, float64(backlog.Sequences))
	m.observe(MetricUnsavedAge, backlog.Oldest.Seconds())
	m.count(MetricSaved, c.Saved)
	m.count(MetricSavedBytes, c.SavedBytes)
	m.count(MetricSaveFailures, c.Failed)
	m.count(MetricFenced, c.Fenced)
	m.count(MetricRestored, c.Restored)
	m.count(MetricRestoreMissing, c.Missing)
	m.count(MetricRestoreDamaged, c.Damaged)
	m.count(MetricRestoreFailures, c.NotRestored)
	return c.Saturated
}
