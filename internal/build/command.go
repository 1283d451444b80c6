package build

import (
	"fmt"
	"path/filepath"
	"slices"
)

// commandFile is the command for people and scripts. It finds ONNX Runtime in the backend's folder, from its own place.
const commandFile = "tritonstateful"

// commandLine compiles the command, as goLibrary does the library: when the packages have other build IDs.
func (t *tree) commandLine() error { return t.commandFor(host()) }

func (t *tree) commandFor(of target) error {
	cgo, file := t.compiling(of), filepath.Join(t.installFor(of), "bin", commandFile)
	flags := []string{"-trimpath", "-buildvcs=false"}
	link := fmt.Sprintf(`-ldflags=-s -w -buildid= %s -extldflags=-Wl,-z,lazy`, t.commitFlag())
	source := "./" + filepath.Join("cmd", commandFile)
	id, err := cgo.output("go", slices.Concat([]string{"list", "-export", "-f", "{{.BuildID}}"}, flags, []string{source})...)
	if err != nil {
		return err
	}
	return t.refresh(file, id+link, func() error {
		return cgo.run("go", slices.Concat([]string{"build"}, flags, []string{link, "-o", file, source})...)
	})
}
