package release

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// RuntimePart is the name of ONNX Runtime among the parts.
const RuntimePart = "onnxruntime"

// ORTPart describes ONNX Runtime, from the folder of its package as pip unpacks it, which has its licenses, and the
// metadata of its wheel.
func ORTPart(packageFolder, metadata string) (Part, error) {
	text, err := os.ReadFile(metadata)
	if err != nil {
		return Part{}, fmt.Errorf("read what ONNX Runtime's wheel says: %w", err)
	}
	part := Part{Name: RuntimePart, License: "MIT", Files: []string{Runtime}}
	for line := range strings.Lines(string(text)) {
		if version, found := strings.CutPrefix(line, "Version: "); found && part.Version == "" {
			part.Version = strings.TrimSpace(version)
		}
	}
	if part.Version == "" {
		return Part{}, fmt.Errorf("%s names no version", metadata)
	}
	part.Purl = "pkg:pypi/onnxruntime@" + part.Version
	for _, name := range []string{"LICENSE", "ThirdPartyNotices.txt"} {
		content, err := os.ReadFile(filepath.Join(packageFolder, name))
		if err != nil {
			return Part{}, fmt.Errorf("read a license of ONNX Runtime: %w", err)
		}
		part.Texts = append(part.Texts, Text{name, string(content)})
	}
	if license, err := expression(slices.Clip(part.Texts[:1])); err != nil || license != part.License {
		return Part{}, fmt.Errorf("ONNX Runtime's license is %q: want %s", license, part.License)
	}
	return part, nil
}
