package ortrunner

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	ort "github.com/yalue/onnxruntime_go"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
)

// plugins are the libraries of execution providers that the process has loaded. They stay:
// sessions use them, and a library is registered once.
var plugins = struct {
	sync.Mutex
	devices map[string][]ort.EpDevice // by the path of the library
	// registered counts libraries, also those that were unregistered: a name is used once.
	registered int
}{devices: map[string][]ort.EpDevice{}}

// allDevices lists the devices of all execution providers. A test replaces it.
var allDevices = ort.GetEpDevices

// pluginOf returns what adds the execution provider of a plugin to the options of a session,
// or nil if there is none.
func pluginOf(o onnx.SessionOptions) func(*ort.SessionOptions) error {
	if o.Plugin == nil {
		return nil
	}
	return func(options *ort.SessionOptions) error {
		if err := appendPlugin(options, o.Plugin); err != nil {
			return status.Errorf(status.CodeOf(err), "execution provider library %s: %w", o.Plugin.Library, err)
		}
		return nil
	}
}

func appendPlugin(options *ort.SessionOptions, p *onnx.Plugin) error {
	devices, err := devicesOf(p.Library)
	if err != nil {
		return err
	}
	var names []string
	for _, d := range devices {
		if !slices.Contains(names, d.EpName()) {
			names = append(names, d.EpName())
		}
	}
	name := p.Name
	switch {
	case len(names) == 0:
		return status.Errorf(status.Unavailable, "it offers no device on this machine: run the server on a machine that has one, or remove the parameter ort_ep_library")
	case name == "" && len(names) > 1:
		return status.Errorf(status.InvalidArg, "it offers several execution providers: set the parameter ort_ep_name to one of %s", strings.Join(names, ", "))
	case name == "":
		name = names[0]
	case !slices.Contains(names, name):
		return status.Errorf(status.InvalidArg, "parameter ort_ep_name is %q: the execution providers that it offers on this machine are %s", name, strings.Join(names, ", "))
	}
	// ONNX Runtime takes several devices of a provider, but most providers only one.
	first := slices.IndexFunc(devices, func(d ort.EpDevice) bool { return d.EpName() == name })
	settings := make(map[string]string, len(p.Options))
	for _, s := range p.Options {
		settings[s.Key] = s.Value
	}
	if err := options.AppendExecutionProviderV2(devices[first:first+1], settings); err != nil {
		return status.Errorf(status.InvalidArg, "execution provider %s, from ort_ep_name and ort_ep_options: %w", name, err)
	}
	return nil
}

// devicesOf loads a library, once, and returns the devices that its execution providers offer.
func devicesOf(library string) ([]ort.EpDevice, error) {
	plugins.Lock()
	defer plugins.Unlock()
	if devices, loaded := plugins.devices[library]; loaded {
		return devices, nil
	}
	before, err := allDevices()
	if err != nil {
		return nil, err
	}
	plugins.registered++
	name := fmt.Sprintf("stateful-plugin-%d", plugins.registered)
	if err := ort.RegisterExecutionProviderLibrary(name, library); err != nil {
		return nil, status.Errorf(status.InvalidArg, "%w: want a shared library that exports CreateEpFactories and ReleaseEpFactory", err)
	}
	after, err := allDevices()
	if err != nil { // the next load begins at the start
		return nil, errors.Join(err, ort.UnregisterExecutionProviderLibrary(name))
	}
	devices := slices.DeleteFunc(after, func(d ort.EpDevice) bool { return slices.Contains(before, d) })
	plugins.devices[library] = devices
	return devices, nil
}
