package capacity

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"

	"tritonstateful/backend"
	"tritonstateful/internal/cli/localserver"
	"tritonstateful/internal/cli/offline"
	"tritonstateful/internal/cli/parity"
	"tritonstateful/internal/cli/scratch"
	"tritonstateful/internal/modelconfig"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/statestore"
)

const (
	// mostMeasured and mostBytes bound the sequences that run.
	mostMeasured = 1024
	mostBytes    = 512 << 20
	// telling is how much must grow before it is divided by the sequences.
	telling = 1 << 20
	// bookkeeping is what a sequence takes besides its states, where that cannot be measured.
	bookkeeping = 200
	// mostLanes are the sequences whose requests differ; others repeat them.
	mostLanes = 8
)

// meter measures one model.
type meter struct {
	model  *offline.Model
	tools  Tools
	inputs [][][]backend.Input
	plan   *Plan

	mu     sync.Mutex
	first  onnx.Runner // the session of the instance
	holds  int64       // what the instance says that it holds
	before int64       // resident memory before the load
}

// Measure plans for a number of sequences of a model with states.
func Measure(m *offline.Model, tools Tools, o Options) (*Plan, error) {
	if !m.Sequences() || m.Plan.KeepsNothing() {
		return nil, errors.New("the model keeps nothing of a sequence between its requests, so there is nothing to plan")
	}
	p := &Plan{Sequences: o.Sequences, Steps: o.Steps, Rate: o.Rate}
	full, err := m.WithStore("")
	if err != nil {
		return nil, err
	}
	if err := p.slots(m, full); err != nil {
		return nil, err
	}
	t := &meter{model: m, tools: tools, plan: p}
	if t.inputs, p.StateBytes, err = parity.Requests(m, tools.Open, parity.Options{Lanes: min(mostLanes, p.Sequences), Steps: o.Steps, Extent: o.Extent, Data: o.Data}); err != nil {
		return nil, err
	}
	if err := t.measure(full); err != nil {
		return nil, err
	}
	if p.Saved, err = t.saved(); err != nil {
		return nil, err
	}
	p.traffic()
	return p, nil
}

// measure loads the model and runs sequences, as many as is quick.
func (t *meter) measure(full *modelconfig.ModelConfig) error {
	p := t.plan
	if t.before = t.resident(); t.before == 0 {
		return errors.New("the resident memory of this process is unknown: want a Linux system with /proc")
	}
	in, err := t.load(full)
	if err != nil {
		return err
	}
	defer in.Close()
	p.LargestBatch = in.LargestBatch()
	p.Loaded = max(t.resident()-t.before, 0)
	p.Batch = t.holds - t.session() - int64(p.InitialSlots)*p.SlotBytes
	each := max(p.StateBytes, p.SlotBytes) + bookkeeping
	p.Measured = int(max(1, min(int64(p.Sequences), int64(p.Slots), mostMeasured, mostBytes/each)))
	group := min(p.LargestBatch, p.Measured)
	if err := t.play(in, 0, group); err != nil {
		return err
	}
	one := t.resident()
	if err := t.play(in, group, p.Measured); err != nil {
		return err
	}
	all := t.resident()
	if grown := all - one; p.Measured > group && grown > telling {
		p.SequenceBytes = grown / int64(p.Measured-group)
		each = p.SequenceBytes
	}
	p.Session = t.session()
	p.Resident = all - t.before + int64(p.Sequences-p.Measured)*each
	return nil
}

// load serves the model, and notes its session and what it holds.
func (t *meter) load(full *modelconfig.ModelConfig) (*localserver.Instance, error) {
	open := func(o onnx.SessionOptions) (onnx.Runner, error) {
		r, err := t.tools.Open(o)
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.first == nil {
			t.first = r
		}
		return r, err
	}
	info := backend.ModelInfo{Name: t.model.Name, Version: t.model.Version, Directory: t.model.Directory, Config: modelconfig.JSON(full)}
	info.ReportMemory = func(uses []backend.MemoryUse) {
		for _, use := range uses {
			if use.Device == backend.HostMemory && t.holds == 0 { // at load
				t.holds = use.Bytes
			}
		}
	}
	return localserver.Load(info, nil, open)
}

func (t *meter) session() int64 {
	if sizer, can := t.first.(onnx.Sizer); can {
		return sizer.SessionBytes()
	}
	return 0
}

// play runs the steps of sequences from one to another, in the largest batches, and leaves them open.
func (t *meter) play(in *localserver.Instance, from, to int) error {
	for begin := from; begin < to; begin += in.LargestBatch() {
		for step := range t.plan.Steps {
			var requests []localserver.Request
			for i := begin; i < min(begin+in.LargestBatch(), to); i++ {
				requests = append(requests, localserver.Request{ID: uint64(i) + 1, Start: step == 0, Inputs: t.inputs[i%len(t.inputs)][step], Slot: i - begin})
			}
			for i, answer := range in.Run(requests) {
				if answer.Err != nil {
					return fmt.Errorf("sequence %d, step %d: %w", begin+i, step, answer.Err)
				}
			}
		}
	}
	return nil
}

// saved is the size of a saved state after the steps.
func (t *meter) saved() (int64, error) {
	folder, remove, err := scratch.Folder("tritonstateful-plan-")
	if err != nil {
		return 0, err
	}
	defer remove()
	full, err := t.model.WithStore("file:" + folder)
	if err != nil {
		return 0, err
	}
	in, err := t.load(full)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	for step := range t.plan.Steps {
		r := localserver.Request{ID: 1, Start: step == 0, Inputs: t.inputs[0][step], Parameters: &backend.Parameters{Step: -1, Save: step == t.plan.Steps-1}}
		if answer := in.Run([]localserver.Request{r})[0]; answer.Err != nil {
			return 0, answer.Err
		}
	}
	store, err := statestore.Open("file:" + folder)
	if err != nil {
		return 0, err
	}
	defer store.Close()
	for key, err := range store.Keys(context.Background(), "") {
		if err != nil {
			return 0, err
		}
		values, err := store.Get(context.Background(), key)
		if err != nil || len(values) == 0 {
			return 0, err
		}
		return int64(len(values[0])), nil
	}
	return 0, errors.New("the state of a sequence was not saved")
}

// resident is the resident memory of this process without what is free in it, or 0 where that is not known.
func (t *meter) resident() int64 {
	debug.FreeOSMemory()
	t.tools.Trim()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmRSS:" {
			kilobytes, _ := strconv.ParseInt(fields[1], 10, 64)
			return kilobytes << 10
		}
	}
	return 0
}
