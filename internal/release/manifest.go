package release

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"tritonstateful/backend/config"
	"tritonstateful/internal/glibc"
	"tritonstateful/internal/statestore"
	"tritonstateful/internal/triton"
	"tritonstateful/internal/version"
)

// ManifestFile is the manifest's place in the archive: next to the libraries, so that it is installed with them.
const ManifestFile = "backends/stateful/manifest.json"

// A Manifest says what an archive is and needs. Programs read it: a change after which one would be wrong raises Schema.
type Manifest struct {
	Schema       int               `json:"schema"`
	Name         string            `json:"name"`
	Version      string            `json:"version"`
	Commit       string            `json:"commit"`
	Platform     string            `json:"platform"` // linux-x86_64
	Variant      string            `json:"variant"`  // cpu or gpu
	BuiltWith    map[string]string `json:"built_with"`
	Parts        map[string]string `json:"parts"`
	Requires     Requires          `json:"requires"`
	Tested       []Server          `json:"tested_servers"`
	Capabilities Capabilities      `json:"capabilities"`
}

// Requires is what the system and the server must have.
type Requires struct {
	TritonBackendAPI string   `json:"triton_backend_api"` // this or a later one with the same first number
	Glibc            string   `json:"glibc"`              // the latest version that a file of the archive names
	Libraries        []string `json:"libraries"`          // of the system, that files of the archive open
}

// A Server is one that this version was tested with.
type Server struct {
	Version string `json:"version"` // of tritonserver: 2.51
	Release string `json:"release"` // of its container: 24.10
	Source  string `json:"source"`  // the package of PyPI that has it
}

// Capabilities is what tools may ask an installed backend.
type Capabilities struct {
	Parameters  []string `json:"parameters"`   // that a model's configuration can have
	StateFormat int      `json:"state_format"` // of saved states
}

// tested are the servers that docs/compatibility.md says were run, from the wheels of nvidia-pytriton.
var tested = []Server{
	{"2.28", "22.11", "nvidia-pytriton 0.1.4"}, {"2.33", "23.04", "nvidia-pytriton 0.2.5"}, {"2.36", "23.07", "nvidia-pytriton 0.3.1"},
	{"2.39", "23.10", "nvidia-pytriton 0.4.2"}, {"2.41", "23.12", "nvidia-pytriton 0.5.0"}, {"2.44", "24.03", "nvidia-pytriton 0.5.5"},
	{"2.48", "24.07", "nvidia-pytriton 0.5.10"}, {"2.51", "24.10", "nvidia-pytriton 0.7.0"},
}

// NewManifest describes the files of a folder. programs are its programs and libraries, parts is what is linked into them.
func NewManifest(folder, platform, variant, commit string, builtWith map[string]string, programs []string, parts []Part) (*Manifest, error) {
	m := &Manifest{
		Schema: 1, Name: "tritonstateful", Version: version.Number, Commit: commit, Platform: platform, Variant: variant,
		BuiltWith: builtWith, Parts: map[string]string{}, Tested: tested,
		Capabilities: Capabilities{config.ParameterNames(), statestore.Format},
	}
	for i := range parts {
		m.Parts[parts[i].Name] = parts[i].Version
	}
	m.Requires.TritonBackendAPI = fmt.Sprintf("%d.%d", triton.OldestAPIMajor, triton.OldestAPIMinor)
	for _, program := range programs {
		binary, err := readBinary(filepath.Join(folder, program))
		if err != nil {
			return nil, err
		}
		if glibc.Older(m.Requires.Glibc, binary.glibc) {
			m.Requires.Glibc = binary.glibc
		}
		m.Requires.Libraries = append(m.Requires.Libraries, binary.needed...)
	}
	slices.Sort(m.Requires.Libraries)
	m.Requires.Libraries = slices.Compact(m.Requires.Libraries)
	return m, nil
}

// JSON is the text of the manifest's file.
func (m *Manifest) JSON() ([]byte, error) { return encode(m) }

// parseManifest reads a manifest.
func parseManifest(text []byte) (*Manifest, error) {
	m := &Manifest{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("read %s: %w", ManifestFile, err)
	}
	return m, nil
}
