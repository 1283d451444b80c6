package release

import (
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tritonstateful/internal/glibc"
)

// The files of every archive that Check reads.
const (
	Loader      = "backends/stateful/libtriton_stateful.so"
	Library     = "backends/stateful/libtriton_stateful_go.so"
	Runtime     = "backends/stateful/libonnxruntime_stateful.so" // not in an archive for GPUs
	Command     = "bin/tritonstateful"
	NoticesFile = "THIRD_PARTY_NOTICES.txt"
	CycloneFile = "sbom.cdx.json"
	SPDXFile    = "sbom.spdx.json"
)

// EntryPoints are all that our libraries may export.
var EntryPoints = []string{
	"TRITONBACKEND_Finalize",
	"TRITONBACKEND_GetBackendAttribute",
	"TRITONBACKEND_Initialize",
	"TRITONBACKEND_ModelFinalize",
	"TRITONBACKEND_ModelInitialize",
	"TRITONBACKEND_ModelInstanceExecute",
	"TRITONBACKEND_ModelInstanceFinalize",
	"TRITONBACKEND_ModelInstanceInitialize",
	"TRITONBACKEND_ModelInstanceReady",
}

// A folder of a server's image has these; ONNX Runtime also needs what C++ programs do.
var (
	libc    = []string{"libc.so.6", "libdl.so.2", "libpthread.so.0", "libm.so.6", "librt.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
	libcxx  = []string{"libstdc++.so.6", "libgcc_s.so.1"}
	machine = map[string]elf.Machine{"linux-x86_64": elf.EM_X86_64, "linux-aarch64": elf.EM_AARCH64}
)

// newestGlibc is that of Ubuntu 22.04, Debian 12 and RHEL 9, the oldest systems that we promise.
const newestGlibc = "2.34"

// Check reports all that is wrong with the files of an unpacked archive. secrets are texts, such as folders of the machine
// that built it, that must not be in a program.
func Check(folder string, secrets ...string) error {
	text, err := os.ReadFile(filepath.Join(folder, ManifestFile))
	if err != nil {
		return err
	}
	m, err := parseManifest(text)
	if err != nil {
		return err
	}
	programs := Programs(m.Variant)
	var wrong []error
	for _, program := range programs {
		wrong = append(wrong, checkBinary(folder, program, m), checkSecrets(filepath.Join(folder, program), secrets))
	}
	wrong = append(wrong, checkSums(folder), checkParts(folder, m), CheckLinks(folder))
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md", "INSTALL.md", "docs/parameters.md", "examples/smoke.py", "clients/python/pyproject.toml"} {
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			wrong = append(wrong, err)
		}
	}
	return errors.Join(wrong...)
}

// Programs are the programs and libraries of an archive.
func Programs(variant string) []string {
	if variant == "gpu" {
		return []string{Loader, Library, Command}
	}
	return []string{Loader, Library, Runtime, Command}
}

// checkBinary checks what a file needs of a system and offers to others.
func checkBinary(folder, program string, m *Manifest) error {
	b, err := readBinary(filepath.Join(folder, program))
	if err != nil {
		return err
	}
	var wrong []error
	if b.machine != machine[m.Platform] {
		wrong = append(wrong, fmt.Errorf("%s is for %s: want one for %s", program, b.machine, m.Platform))
	}
	if glibc.Older(newestGlibc, b.glibc) || glibc.Older(m.Requires.Glibc, b.glibc) {
		wrong = append(wrong, fmt.Errorf("%s needs glibc %s: want at most %s, and what the manifest says, %s", program, b.glibc, newestGlibc, m.Requires.Glibc))
	}
	allowed := libc
	if program == Runtime {
		allowed = slices.Concat(libc, libcxx)
	}
	for _, needed := range b.needed {
		if !slices.Contains(allowed, needed) || !slices.Contains(m.Requires.Libraries, needed) {
			wrong = append(wrong, fmt.Errorf("%s needs %s: want only %s, and these in the manifest", program, needed, strings.Join(allowed, ", ")))
		}
	}
	if (program == Loader || program == Library) && !slices.Equal(b.exports, EntryPoints) {
		wrong = append(wrong, fmt.Errorf("%s exports %s: want %s", program, strings.Join(b.exports, ", "), strings.Join(EntryPoints, ", ")))
	}
	return errors.Join(wrong...)
}

// checkSecrets looks for texts in a file.
func checkSecrets(path string, secrets []string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for _, secret := range secrets {
		if secret != "" && strings.Contains(string(content), secret) {
			return fmt.Errorf("%s contains %q, which only the machine that built it knows", path, secret)
		}
	}
	return nil
}

func checkSums(folder string) error {
	want, err := Sums(folder)
	if err != nil {
		return err
	}
	got, err := os.ReadFile(filepath.Join(folder, SumsFile))
	if err != nil {
		return err
	}
	if string(got) != want {
		return fmt.Errorf("%s does not have the hashes of exactly the other files", SumsFile)
	}
	return nil
}

// checkParts compares what is linked into the programs with the manifest, the notices and both bills of materials.
func checkParts(folder string, m *Manifest) error {
	modules, goVersion, err := Linked(folder, Library, Command)
	if err != nil {
		return err
	}
	want := map[string]string{"Go": strings.TrimPrefix(goVersion, "go")}
	for name, part := range modules {
		want[name] = part.Version
	}
	if m.Variant != "gpu" {
		want[RuntimePart] = m.Parts[RuntimePart]
	}
	wrong := []error{same(ManifestFile, m.Parts, want)}
	notices, err := os.ReadFile(filepath.Join(folder, NoticesFile))
	if err != nil {
		return err
	}
	texts := noticed(string(notices))
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if title := name + " " + want[name]; !texts[title] {
			wrong = append(wrong, fmt.Errorf("%s has no text about %s", NoticesFile, title))
		}
	}
	var cyclone struct {
		Components []struct{ Type, Name, Version string }
	}
	var spdx struct {
		Packages []struct{ Name, VersionInfo string }
	}
	if err := errors.Join(readJSON(folder, CycloneFile, &cyclone), readJSON(folder, SPDXFile, &spdx)); err != nil {
		return err
	}
	inCyclone, inSPDX := map[string]string{}, map[string]string{}
	for _, c := range cyclone.Components {
		if c.Type == "library" {
			inCyclone[c.Name] = c.Version
		}
	}
	for _, p := range spdx.Packages {
		if p.Name != m.Name {
			inSPDX[p.Name] = p.VersionInfo
		}
	}
	return errors.Join(append(wrong, same(CycloneFile, inCyclone, want), same(SPDXFile, inSPDX, want))...)
}

// same compares what a file says is in the archive with what is.
func same(file string, got, want map[string]string) error {
	if maps.Equal(got, want) {
		return nil
	}
	return fmt.Errorf("%s lists %v: want %v", file, got, want)
}

func readJSON(folder, name string, into any) error {
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}
