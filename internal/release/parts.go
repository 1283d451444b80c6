package release

import (
	"debug/buildinfo"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A Part is software of others that is in the archive.
type Part struct {
	Name    string   // a Go module's path, "Go" or "onnxruntime"
	Version string   // as its authors write it: v1.2.3 or 1.31.1
	License string   // an SPDX expression
	Purl    string   // its package URL
	Files   []string // the files of the archive that have it, sorted
	Texts   []Text   // its licenses and notices
}

// A Text is a file that came with a part.
type Text struct{ Name, Content string }

// A Source is a package of Go that was compiled, as go list -deps shows it.
type Source struct{ Folder, Module, Version, ModuleFolder string }

// ours is the beginning of the paths of our own modules.
const ours = "tritonstateful"

// Linked returns the modules of others that are in programs and libraries of Go, by their paths, and the version of Go.
// programs are the paths of files below folder.
func Linked(folder string, programs ...string) (modules map[string]*Part, goVersion string, err error) {
	modules = map[string]*Part{}
	for _, program := range slices.Sorted(slices.Values(programs)) {
		info, err := buildinfo.ReadFile(filepath.Join(folder, program))
		if err != nil {
			return nil, "", fmt.Errorf("read what is linked into %s: %w", program, err)
		}
		goVersion = info.GoVersion
		for _, dep := range info.Deps {
			if strings.HasPrefix(dep.Path+"/", ours+"/") {
				continue
			}
			if dep.Replace != nil {
				return nil, "", fmt.Errorf("%s has %s in the place of module %s: a release has no replaced modules of others", program, dep.Replace.Path, dep.Path)
			}
			part := modules[dep.Path]
			if part == nil {
				part = &Part{Name: dep.Path, Version: dep.Version, Purl: "pkg:golang/" + strings.ToLower(dep.Path) + "@" + dep.Version}
				modules[dep.Path] = part
			}
			if part.Version != dep.Version {
				return nil, "", fmt.Errorf("module %s is linked in two versions, %s and %s", dep.Path, part.Version, dep.Version)
			}
			part.Files = append(part.Files, program)
		}
	}
	return modules, goVersion, nil
}

// GoParts returns what Go programs are linked from, with licenses: Go itself, then the modules. sources are the packages
// that they were compiled from; root is Go's own folder. A module without a license that we know is an error.
func GoParts(folder string, programs []string, sources []Source, root string) ([]Part, error) {
	modules, goVersion, err := Linked(folder, programs...)
	if err != nil {
		return nil, err
	}
	texts, err := moduleTexts(sources)
	if err != nil {
		return nil, err
	}
	for name := range texts {
		if modules[name] == nil {
			return nil, fmt.Errorf("module %s was compiled but is not linked into %s: build again", name, strings.Join(programs, ", "))
		}
	}
	number := strings.TrimPrefix(goVersion, "go")
	language := Part{Name: "Go", Version: number, License: "BSD-3-Clause", Purl: "pkg:golang/std@" + number, Files: slices.Sorted(slices.Values(programs))}
	if language.Texts, err = readTexts(root, "."); err != nil {
		return nil, err
	}
	parts := []Part{language}
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		part := modules[name]
		part.Texts = texts[name]
		if part.License, err = expression(part.Texts); err != nil {
			return nil, fmt.Errorf("module %s: %w", name, err)
		}
		parts = append(parts, *part)
	}
	return parts, nil
}

// moduleTexts reads the licenses and notices of the modules of others, by their paths: those of the module's folder, of a
// folder licenses in it, and of the folders of the packages that were compiled.
func moduleTexts(sources []Source) (map[string][]Text, error) {
	folders := map[string]map[string]bool{}
	roots := map[string]string{}
	for _, s := range sources {
		if s.Module == "" || strings.HasPrefix(s.Module+"/", ours+"/") {
			continue
		}
		if folders[s.Module] == nil {
			folders[s.Module] = map[string]bool{".": true, "licenses": true}
			roots[s.Module] = s.ModuleFolder
		}
		relative, err := filepath.Rel(s.ModuleFolder, s.Folder)
		if err != nil || strings.HasPrefix(relative, "..") {
			return nil, fmt.Errorf("package folder %s is not in that of its module, %s", s.Folder, s.ModuleFolder)
		}
		for ; relative != "."; relative = filepath.Dir(relative) {
			folders[s.Module][relative] = true
		}
	}
	texts := map[string][]Text{}
	for module, within := range folders {
		for _, folder := range slices.Sorted(maps.Keys(within)) {
			found, err := readTexts(roots[module], folder)
			if err != nil {
				return nil, err
			}
			texts[module] = append(texts[module], found...)
		}
	}
	return texts, nil
}

// legal are the names of files that have to travel with what they are about. In a folder licenses, all do.
var legal = regexp.MustCompile(`(?i)^(licen[cs]e|copying|copyright|notice|patents)([-._].*)?$`)

func readTexts(root, folder string) (texts []Text, err error) {
	entries, err := os.ReadDir(filepath.Join(root, folder))
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("look for licenses: %w", err)
	}
	for _, entry := range entries {
		if !entry.Type().IsRegular() || strings.HasSuffix(entry.Name(), ".go") || (folder != "licenses" && !legal.MatchString(entry.Name())) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, folder, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("read a license: %w", err)
		}
		texts = append(texts, Text{filepath.Join(folder, entry.Name()), string(content)})
	}
	return texts, nil
}
