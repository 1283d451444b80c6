package build

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// A recipe makes files from other files.
type recipe struct {
	name    string   // of its stamp
	inputs  []string // files whose content the outputs depend on
	words   []string // what else they depend on, such as flags
	outputs []string
	make    func() error
}

// cook makes the outputs, unless they are there and were made from the same
// inputs. The stamp, a hash of the inputs, is written last: what was interrupted
// is made again.
func (r recipe) cook(stamps string) error {
	want, err := r.digest()
	if err != nil {
		return err
	}
	stamp := filepath.Join(stamps, r.name)
	if made, err := os.ReadFile(stamp); err == nil && string(made) == want && r.complete() {
		return nil
	}
	if err := os.Remove(stamp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := r.make(); err != nil {
		return err
	}
	if err := os.MkdirAll(stamps, 0o755); err != nil {
		return err
	}
	return os.WriteFile(stamp, []byte(want), 0o644)
}

// digest hashes the words and the content of the inputs. Lengths go in as well,
// so that nothing can move from one to the next unnoticed.
func (r recipe) digest() (string, error) {
	hash := sha256.New()
	for _, word := range r.words {
		fmt.Fprintf(hash, "%d %s\n", len(word), word)
	}
	for _, path := range r.inputs {
		content, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%d %s\n", len(content), content)
	}
	return fmt.Sprintf("%x\n", hash.Sum(nil)), nil
}

// complete reports whether all outputs exist.
func (r recipe) complete() bool {
	for _, path := range r.outputs {
		if _, err := os.Stat(path); err != nil {
			return false
		}
	}
	return true
}
