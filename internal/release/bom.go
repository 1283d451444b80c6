package release

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // SPDX 2.3 wants it; SHA-256 is next to it
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// A Bill is what both bills of materials say.
type Bill struct {
	Name, Version string // of the archive, without and with the variant: tritonstateful, 0.1.0
	Variant       string // linux-x86_64-cpu
	Built         time.Time
	Parts         []Part
	Files         []File // the programs and libraries
}

// A File is one of the archive.
type File struct{ Path, SHA1, SHA256 string }

// HashFiles returns these files of a folder with their hashes.
func HashFiles(folder string, paths ...string) (files []File, err error) {
	for _, path := range paths {
		content, err := os.ReadFile(filepath.Join(folder, path))
		if err != nil {
			return nil, fmt.Errorf("hash a file of the archive: %w", err)
		}
		files = append(files, File{path, fmt.Sprintf("%x", sha1.Sum(content)), fmt.Sprintf("%x", sha256.Sum256(content))})
	}
	return files, nil
}

// id is a UUID that is the same for the same content.
func (b *Bill) id() string {
	h := sha256.New()
	fmt.Fprintln(h, b.Name, b.Version, b.Variant, b.Built.Unix(), b.Files)
	sum := h.Sum(nil)
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80 // version 8: made by a rule of our own
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

func (b *Bill) timestamp() string { return b.Built.UTC().Format("2006-01-02T15:04:05Z") }

// object is one of JSON, whose keys are written sorted.
type object map[string]any

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(v)
	return b.Bytes(), err
}
