package offline

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"tritonstateful/backend/config"
	"tritonstateful/internal/modelconfig"
)

// Files are those of a model, and its configuration as it is written.
type Files struct {
	Name string
	// Directory is the model's folder in a repository, and Version the version that is looked at. For an ONNX file that is
	// in no folder of a version, Directory is where the file is, and Version 0.
	Directory string
	Version   uint64
	IsFolder  bool   // a folder was given, and not an ONNX file
	Model     string // path of the ONNX file
	Config    string // path of config.pbtxt; empty: there is none
	Given     *modelconfig.ModelConfig
}

// Read finds the files of a model. path is an ONNX file, or a model's folder; configPath is its config.pbtxt, which is
// config.pbtxt in the folder, or none, if it is empty.
func Read(path, configPath string) (*Files, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("reading the model: %w: want an ONNX file, or the model's folder of a model repository", err)
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	f := &Files{Name: nameOf(absolute), Directory: filepath.Dir(absolute), Model: absolute, IsFolder: info.IsDir()}
	if version := versionOf(filepath.Base(f.Directory)); version > 0 && !f.IsFolder {
		f.Directory, f.Version = filepath.Dir(f.Directory), version
	}
	if f.IsFolder {
		f.Name, f.Directory = filepath.Base(absolute), absolute
		if found := filepath.Join(path, "config.pbtxt"); configPath == "" && exists(found) {
			configPath = found
		}
	}
	if err := f.readConfig(configPath); err != nil {
		return nil, err
	}
	if info.IsDir() {
		return f, f.findModel()
	}
	return f, nil
}

// nameOf is what the model in an ONNX file is called: as the file, or as the model's folder if the file is called model.onnx.
func nameOf(path string) string {
	name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	folder := filepath.Dir(path)
	if versionOf(filepath.Base(folder)) > 0 {
		folder = filepath.Dir(folder)
	}
	if above := filepath.Base(folder); name == "model" && above != "." && above != string(filepath.Separator) {
		return above
	}
	return name
}

// versionOf is the version whose folder has this name; 0 if it is no folder of a version. Triton ignores those that begin with 0.
func versionOf(name string) uint64 {
	if n, err := strconv.ParseUint(name, 10, 63); err == nil && name[0] != '0' {
		return n
	}
	return 0
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// readConfig reads the configuration, and gives it the name that Triton would give it.
func (f *Files) readConfig(path string) error {
	f.Given, f.Config = &modelconfig.ModelConfig{}, path
	if path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if f.Given, err = modelconfig.Parse(text); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if f.Given.Name == "" {
		f.Given.Name = f.Name
	}
	f.Name = f.Given.Name
	switch {
	case f.Given.Platform == "ensemble":
		return fmt.Errorf("%s: an ensemble has no model file: want the folder of one of its models", path)
	case f.IsFolder && f.Given.Backend == "" && f.Given.Platform != "": // a server would choose another backend
		return fmt.Errorf("%s: platform is %q, and there is no backend: want backend: \"stateful\"; tritonstateful migrate rewrites a configuration for it", path, f.Given.Platform)
	case f.Given.Backend == "":
		f.Given.Backend = "stateful"
	}
	if f.Given.Backend != "stateful" {
		return fmt.Errorf("%s: backend is %q: want \"stateful\"; tritonstateful migrate rewrites a configuration for it", path, f.Given.Backend)
	}
	return nil
}

// findModel finds the latest version in the model's folder, and the model file in it.
func (f *Files) findModel() error {
	entries, err := os.ReadDir(f.Directory)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		f.Version = max(f.Version, versionOf(entry.Name()))
	}
	if f.Version == 0 {
		for _, entry := range entries {
			if exists(filepath.Join(f.Directory, entry.Name(), "1")) || exists(filepath.Join(f.Directory, entry.Name(), "config.pbtxt")) {
				return fmt.Errorf("%s is a model repository: want the folder of one of its models, such as %s", f.Directory, filepath.Join(f.Directory, entry.Name()))
			}
		}
		return fmt.Errorf("%s has no folder of a version: want the model's folder of a model repository, with %s in it", f.Directory, filepath.Join("1", "model.onnx"))
	}
	cfg, params, err := f.parameters(modelconfig.JSON(f.Given))
	if params == nil || !params.Understood("onnx_file_name") {
		return err
	}
	name, err := params.ModelFile(cfg)
	if err != nil {
		return err
	}
	f.Model = filepath.Join(f.Directory, strconv.FormatUint(f.Version, 10), name)
	if _, err := os.Stat(f.Model); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the model file is missing: %w", err)
	}
	return nil
}

// libraryFolders are where libraries with relative names are.
func (f *Files) libraryFolders() []string {
	return []string{filepath.Join(f.Directory, strconv.FormatUint(f.Version, 10)), f.Directory}
}

// Libraries are the libraries of custom operators that lie next to the model, by their names in the configuration.
func (f *Files) Libraries() (paths map[string]string) {
	paths = map[string]string{}
	for _, name := range f.Given.GetModelOperations().GetOpLibraryFilename() {
		if path := config.FindLibrary(name, f.libraryFolders()...); filepath.IsLocal(name) && path != name {
			paths[name] = path
		}
	}
	return paths
}

// parameters parses a configuration as JSON; an error with parameters is about some of them.
func (f *Files) parameters(text []byte) (*config.Config, *config.Parameters, error) {
	cfg, err := config.Parse(text)
	if err != nil {
		return nil, nil, err
	}
	params, _, err := config.ParseParameters(cfg.Parameters)
	if params != nil {
		var wrong error
		params.Session.Operators, wrong = cfg.OperatorLibraries(f.libraryFolders()...)
		err = errors.Join(err, wrong)
	}
	return cfg, params, err
}
