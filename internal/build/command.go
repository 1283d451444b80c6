package build

import (
	"fmt"
	"path/filepath"
	"slices"
)

// commandFile is the command for people and scripts. It finds ONNX Runtime in the backend's folder, from its own place.
const commandFile = "tritonstateful"

// commandLine compiles the command, as goLibrary does the library: when the packages have other build IDs.
func (t *tree) commandLine() error {
	cgo, file := t.with("CGO_ENABLED=1"), t.path("build", "install", "bin", commandFile)
	flags := []string{"-trimpath", "-buildvcs=false"}
	link := fmt.Sprintf(`-ldflags=-s -w -X main.version=%s -extldflags=-Wl,-z,lazy`, t.version())
	source := "./" + filepath.Join("cmd", commandFile)
	id, err := cgo.output("go", slices.Concat([]string{"list", "-export", "-f", "{{.BuildID}}"}, flags, []string{source})...)
	if err != nil {
		return err
	}
	return t.refresh(file, id+link, func() error {
		return cgo.run("go", slices.Concat([]string{"build"}, flags, []string{link, "-o", file, source})...)
	})
}
