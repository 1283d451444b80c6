package main

// #include <string.h>
// #include "batch.h"
import "C"

import (
	"fmt"
	"strconv"
	"strings"
	"unsafe"

	"tritonstateful/backend"
	"tritonstateful/internal/status"
)

// parameter is a request parameter that the backend knows.
type parameter struct {
	name string
	want string // what it takes
	set  func(*backend.Parameters, parameterValue) (ok bool)
}

// knownParameters are all of them.
var knownParameters = [...]parameter{
	{"stateful_resume", `"try", "require" or a bool`, setResume},
	{"stateful_step", "an integer of at least 0", setStep},
	{"stateful_save", "a bool", func(p *backend.Parameters, v parameterValue) bool { return v.boolean(&p.Save) }},
	{"stateful_key", fmt.Sprintf("a string of 1 to %d bytes", backend.MaxKey), setKey},
	{"stateful_drop", "a bool", setDrop},
}

// parameterValue is the value of a request parameter, in the field of its kind. Integers and
// bools may also come as strings: that is how Triton forwards a header.
type parameterValue struct {
	kind   C.TRITONSERVER_ParameterType
	text   string // borrowed
	number int64
	flag   bool
}

// readParameters makes the Go view of the parameters of request i. It is nil if it has none.
func (b *batch) readParameters(i int) (*backend.Parameters, error) {
	req := &b.entries()[i]
	if req.parameter_count == 0 {
		return nil, nil
	}
	to := &b.parameters[i]
	*to = backend.Parameters{Step: -1}
	seen := [len(knownParameters)]bool{}
	for _, p := range unsafe.Slice(b.c.parameters, b.c.parameter_count)[req.first_parameter:][:req.parameter_count] {
		name := borrow(p.name)
		k := findParameter(name)
		if k < 0 {
			return to, status.Errorf(status.InvalidArg, "parameter %s is unknown: want one of %s", quote(name), parameterNames())
		}
		known := &knownParameters[k]
		if seen[k] {
			return to, status.Errorf(status.InvalidArg, "parameter %q: %s is there twice: want it once", name, known.name)
		}
		seen[k] = true
		if v := newParameterValue(&p); !known.set(to, v) {
			return to, status.Errorf(status.InvalidArg, "parameter %q is %v: want %s", name, v, known.want)
		}
	}
	return to, nil
}

// findParameter returns the index of a known parameter, or -1. In a name that Triton forwards
// from a header, dashes are underscores, and capital letters do not count.
func findParameter(name string) int {
	for k := range knownParameters {
		if sameName(name, knownParameters[k].name) {
			return k
		}
	}
	return -1
}

func sameName(name, known string) bool {
	if len(name) != len(known) {
		return false
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case c == '-':
			c = '_'
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		}
		if c != known[i] {
			return false
		}
	}
	return true
}

func parameterNames() string {
	names := make([]string, len(knownParameters))
	for k := range knownParameters {
		names[k] = knownParameters[k].name
	}
	return strings.Join(names, ", ")
}

func newParameterValue(p *C.batch_parameter) parameterValue {
	v := parameterValue{kind: p._type}
	switch p._type {
	case C.TRITONSERVER_PARAMETER_STRING:
		v.text = borrow((*C.char)(p.value))
	case C.TRITONSERVER_PARAMETER_INT:
		v.number = *(*int64)(p.value)
	case C.TRITONSERVER_PARAMETER_BOOL:
		v.flag = *(*bool)(p.value)
	}
	return v
}

// String describes the value in an error.
func (v parameterValue) String() string {
	switch v.kind {
	case C.TRITONSERVER_PARAMETER_STRING:
		return "the string " + quote(v.text)
	case C.TRITONSERVER_PARAMETER_INT:
		return fmt.Sprintf("the integer %d", v.number)
	case C.TRITONSERVER_PARAMETER_BOOL:
		return fmt.Sprintf("the bool %v", v.flag)
	case C.TRITONSERVER_PARAMETER_DOUBLE:
		return "a floating-point number"
	}
	return "of a type that the backend does not take"
}

// quote quotes what a client wrote, but not much of it.
func quote(text string) string {
	const most = 64
	if len(text) > most {
		return fmt.Sprintf("%q... (%d bytes)", text[:most], len(text))
	}
	return strconv.Quote(text)
}

// boolean stores the value, if it is a bool.
func (v parameterValue) boolean(to *bool) (ok bool) {
	switch v.kind {
	case C.TRITONSERVER_PARAMETER_BOOL:
		*to = v.flag
		return true
	case C.TRITONSERVER_PARAMETER_STRING:
		flag, err := strconv.ParseBool(v.text)
		*to = flag
		return err == nil
	}
	return false
}

func setResume(p *backend.Parameters, v parameterValue) bool {
	switch {
	case v.text == "require":
		p.Resume = backend.ResumeRequire
		return true
	case v.text == "try":
		p.Resume = backend.ResumeTry
		return true
	}
	try := false
	if !v.boolean(&try) {
		return false
	}
	if try {
		p.Resume = backend.ResumeTry
	}
	return true
}

func setStep(p *backend.Parameters, v parameterValue) bool {
	p.Step = v.number
	if v.kind == C.TRITONSERVER_PARAMETER_STRING {
		number, err := strconv.ParseInt(v.text, 10, 64)
		p.Step = number
		return err == nil && number >= 0
	}
	return v.kind == C.TRITONSERVER_PARAMETER_INT && p.Step >= 0
}

func setKey(p *backend.Parameters, v parameterValue) bool {
	p.Key = v.text
	return v.kind == C.TRITONSERVER_PARAMETER_STRING && v.text != "" && len(v.text) <= backend.MaxKey
}

func setDrop(p *backend.Parameters, v parameterValue) bool {
	drop := true
	ok := v.boolean(&drop)
	p.Keep = !drop
	return ok
}

// borrow is a string of C without a copy.
func borrow(text *C.char) string {
	return unsafe.String((*byte)(unsafe.Pointer(text)), C.strlen(text))
}
