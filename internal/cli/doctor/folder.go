package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"tritonstateful/internal/modelconfig"
)

// maxFile bounds the size of files that are read as configurations, in bytes.
const maxFile = 1 << 20

// sequenceHeader is the one by which proxies choose a server.
const sequenceHeader = "stateful-sequence"

// Read adds what a folder and those below it have: models (config.pbtxt), deployments of
// Kubernetes and docker compose (.yaml, .yml), configurations of proxies (.cfg, .conf too), and
// an installed backend. It returns the files that it could not read as what they seem to be,
// such as templates.
func (s *Subject) Read(folder string) (skipped []string, err error) {
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("read the folder: %w", err)
		}
		if entry.IsDir() {
			name := entry.Name()
			switch {
			case path != folder && strings.HasPrefix(name, "."):
				return filepath.SkipDir
			case name == "templates" && isFile(filepath.Join(filepath.Dir(path), "Chart.yaml")):
				skipped = append(skipped, path+": templates of Helm: want what helm template prints, in a file")
				return filepath.SkipDir
			}
			return nil
		}
		if err := s.readFile(path, entry); err != nil {
			skipped = append(skipped, fmt.Sprintf("%s: %v", path, err))
		}
		return nil
	})
	if err == nil && len(s.Libraries) > 0 && s.Libc == nil {
		err = s.lookAtOwnLibc()
	}
	return skipped, err
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func (s *Subject) readFile(path string, entry fs.DirEntry) error {
	name := entry.Name()
	if name == backendFiles[0] {
		libraries, err := readLibraries(filepath.Dir(path))
		s.Libraries = append(s.Libraries, libraries...)
		return err
	}
	extension := filepath.Ext(name)
	switch extension {
	case ".yaml", ".yml", ".cfg", ".conf", ".pbtxt":
	default:
		return nil
	}
	if info, err := entry.Info(); err != nil || info.Size() > maxFile {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	switch {
	case name == "config.pbtxt":
		return s.readModel(path, text)
	case extension == ".pbtxt":
		return nil
	}
	s.Files++
	s.Headers = s.Headers || bytes.Contains(text, []byte(sequenceHeader))
	if extension == ".yaml" || extension == ".yml" {
		return s.readYAML(path, text)
	}
	return nil
}

func (s *Subject) readModel(path string, text []byte) error {
	config, err := modelconfig.Parse(text)
	if err != nil {
		return err
	}
	if config.Name == "" {
		config.Name = filepath.Base(filepath.Dir(path))
	}
	model, err := parseModel(path, modelconfig.JSON(config))
	s.Models = append(s.Models, model)
	return err
}

func (s *Subject) readYAML(path string, text []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var document any
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		s.addDocument(path, document)
	}
}
