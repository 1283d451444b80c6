package main

// #include "describe.h"
import "C"

import (
	"fmt"
	"runtime/cgo"

	"tritonstateful/internal/status"
)

// Triton keeps one void * for us in each backend, model and instance. It holds
// a cgo.Handle of the Go object: made in Initialize, deleted in Finalize.

// storeHandle makes value the state of a Triton object, by that object's SetState
// call.
func storeHandle(value any, set func(C.uintptr_t) *C.TRITONSERVER_Error) error {
	handle := cgo.NewHandle(value)
	if err := takeError(set(C.uintptr_t(handle))); err != nil {
		handle.Delete()
		return err
	}
	return nil
}

// loadHandle returns the value that storeHandle has stored.
func loadHandle[T any](state C.state_result) (T, error) {
	var none T
	if state.error != nil {
		return none, takeError(state.error)
	}
	if state.handle == 0 {
		return none, status.Errorf(status.Internal, "%s: used before it was initialised", nameOf[T]())
	}
	return cgo.Handle(state.handle).Value().(T), nil
}

// releaseHandle forgets the value of a Triton object and calls end with it. There is
// none where Initialize failed: Triton calls Finalize all the same.
func releaseHandle[T any](state C.state_result, end func(T)) error {
	if state.error == nil && state.handle == 0 {
		return nil
	}
	value, err := loadHandle[T](state)
	if err != nil {
		return err
	}
	cgo.Handle(state.handle).Delete()
	end(value)
	return nil
}

func nameOf[T any]() string { return fmt.Sprintf("%T", *new(T)) }
