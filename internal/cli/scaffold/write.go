package scaffold

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"tritonstateful/internal/cli/offline"
)

// Write makes the folder of a model in a repository, which is made if it is missing, and returns what it wrote: also the
// files of weights that the model names, libraries of custom operators next to it, and initial states that are in its folder
// initial_state. A file that is there already is an error, unless force is true; nothing is written then.
func Write(f *offline.Files, repository, config string, force bool) (folder string, written []string, err error) {
	folder = filepath.Join(repository, f.Name)
	content, err := os.ReadFile(f.Model)
	if err != nil {
		return folder, nil, err
	}
	others, err := externalFiles(content)
	if err != nil {
		return folder, nil, fmt.Errorf("%s: %w", f.Model, err)
	}
	sources := map[string]string{filepath.Join(folder, "1", "model.onnx"): f.Model}
	for _, other := range others {
		sources[filepath.Join(folder, "1", other)] = filepath.Join(filepath.Dir(f.Model), other)
	}
	for name, path := range f.Libraries() {
		sources[filepath.Join(folder, name)] = path
	}
	initial, err := filepath.Glob(filepath.Join(f.Directory, "initial_state", "*"))
	if err != nil {
		return folder, nil, err
	}
	for _, from := range initial {
		sources[filepath.Join(folder, "initial_state", filepath.Base(from))] = from
	}
	target := filepath.Join(folder, "config.pbtxt")
	for to, from := range sources {
		if sameFile(to, from) {
			delete(sources, to)
		}
	}
	if !force {
		for _, to := range append(keysOf(sources), target) {
			if _, err := os.Lstat(to); err == nil {
				return folder, nil, fmt.Errorf("%s is there already: want --force to overwrite it, or another --name or --repository", to)
			}
		}
	}
	for _, to := range keysOf(sources) {
		if err := copyFile(to, sources[to]); err != nil {
			return folder, written, err
		}
		written = append(written, to)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return folder, written, err
	}
	if err := os.WriteFile(target, []byte(config), 0o644); err != nil {
		return folder, written, err
	}
	return folder, append(written, target), nil
}

func sameFile(a, b string) bool {
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}

// copyFile replaces a file: a server may have the old one open.
func copyFile(to, from string) (err error) {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}
