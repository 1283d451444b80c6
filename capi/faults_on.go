//go:build faults

package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"tritonstateful/backend"
)

// faults are what the model parameter fault_inject can ask for: mistakes of
// ours, each as Go would meet it. "panic@3" makes the third batch of an
// instance fail, "panic" every one.
var faults = map[string]func(){
	"panic":           func() { panic("injected") },
	"nil-dereference": func() { *(*int)(nil) = 1 },
	"bad-address":     func() { *(*int)(address(0xdead0000)) = 1 },
	"index":           func() { _ = make([]int, 1)[len(faultNames)] },
}

// faultNames has more than one element, so that it is an index out of range.
var faultNames = []string{"panic", "nil-dereference", "bad-address", "index"}

// address makes a pointer of a number, past the checks of vet and checkptr.
func address(a uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&a)) }

type faultyModel struct {
	model
	fault func()
	batch int // which batch fails; 0: all
}

type faultyExecutor struct {
	executor
	of      faultyModel
	batches atomic.Int64
}

// withFaults makes the instances of m fail as its configuration asks.
func withFaults(m model, info backend.ModelInfo) model {
	var config struct {
		Sequence struct {
			Direct *struct{} `json:"direct"`
		} `json:"sequence_batching"`
		Parameters struct {
			Inject struct {
				Value string `json:"string_value"`
			} `json:"fault_inject"`
		} `json:"parameters"`
	}
	if err := json.Unmarshal(info.Config, &config); err != nil || config.Parameters.Inject.Value == "" {
		return m
	}
	if config.Parameters.Inject.Value == asRequested {
		return requestedModel{m, config.Sequence.Direct != nil}
	}
	name, at, _ := strings.Cut(config.Parameters.Inject.Value, "@")
	fault, known := faults[name]
	if !known {
		panic(fmt.Sprintf("fault_inject %q is unknown: want one of %v", name, faultNames))
	}
	batch, _ := strconv.Atoi(at)
	return faultyModel{m, fault, batch}
}

func (m faultyModel) NewInstance(info backend.InstanceInfo) (executor, error) {
	in, err := m.model.NewInstance(info)
	if err != nil {
		return nil, err
	}
	return &faultyExecutor{executor: in, of: m}, nil
}

func (e *faultyExecutor) Execute(b backend.Batch) {
	if batch := e.batches.Add(1); e.of.batch == 0 || e.of.batch == int(batch) {
		e.of.fault()
	}
	e.executor.Execute(b)
}

// TakesParameters is that of the instance, which embedding the interface hides.
func (e *faultyExecutor) TakesParameters() bool {
	takes, ok := e.executor.(parametered)
	return ok && takes.TakesParameters()
}
