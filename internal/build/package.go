package build

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"tritonstateful/internal/release"
	"tritonstateful/internal/version"
)

// A bundle is one archive of a release.
type bundle struct {
	target
	variant string // cpu, or gpu: without ONNX Runtime
}

// platform is what names of files and the manifest call the target.
func (b bundle) platform() string {
	return "linux-" + map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[b.arch]
}

func (b bundle) name() string {
	return fmt.Sprintf("tritonstateful-%s-%s-%s", version.Number, b.platform(), b.variant)
}

// bundles are the archives for a target. PyPI has ONNX Runtime for GPUs only for amd64.
func bundles(of target) []bundle {
	if of.arch == "amd64" {
		return []bundle{{of, "cpu"}, {of, "gpu"}}
	}
	return []bundle{{of, "cpu"}}
}

// pack makes the archives of a release in build/dist, and with --check also checks them as their users will have them.
func (t *tree) pack(args []string) error {
	flags := flag.NewFlagSet("package", flag.ContinueOnError)
	arch := flags.String("arch", runtime.GOARCH, "processor: amd64 or arm64")
	check := flags.Bool("check", false, "check the archives too: content, bills of materials, smoke test, quickstart, conformance tests, a second build")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	of, err := targetFor(*arch)
	if err != nil {
		return err
	}
	if err := t.buildFor(of); err != nil {
		return err
	}
	if err := t.archives(bundles(of)); err != nil || !*check {
		return err
	}
	return t.checkArchives(of)
}

// dist is the folder of the archives.
func (t *tree) dist() string { return t.path("build", "dist") }

// startDist makes the folder of the archives, and keeps what is in it only if that is of the same commit: one SHA256SUMS, which is
// signed, is of one commit.
func (t *tree) startDist(commit string) error {
	return t.refresh(t.dist(), commit, func() error {
		return errors.Join(os.RemoveAll(t.dist()), os.MkdirAll(t.dist(), 0o755))
	})
}

// archives packs bundles, and writes the hashes of all archives that there are of this commit.
func (t *tree) archives(all []bundle) error {
	if err := t.startDist(t.commit()); err != nil {
		return err
	}
	for _, b := range all {
		if err := t.archive(b); err != nil {
			return fmt.Errorf("%s: %w", b.name(), err)
		}
	}
	sums, err := release.Sums(t.dist())
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(t.dist(), release.SumsFile), []byte(sums), 0o644)
}

func (t *tree) archive(b bundle) error {
	folder, err := t.stage(b)
	if err != nil {
		return err
	}
	modified, err := t.epoch()
	if err != nil {
		return err
	}
	path := filepath.Join(t.dist(), b.name()+".tar.gz")
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(release.WriteArchive(file, folder, b.name(), modified), file.Close()); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	fmt.Printf("packed %s, %.1f MB\n", filepath.Join("build", "dist", b.name()+".tar.gz"), float64(info.Size())/1e6)
	return nil
}

// epoch is the time that files of archives get: that of SOURCE_DATE_EPOCH (reproducible-builds.org), or of the commit.
func (t *tree) epoch() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		var err error
		if text, err = t.output("git", "log", "-1", "--format=%ct"); err != nil {
			return time.Time{}, fmt.Errorf("when was this made? set SOURCE_DATE_EPOCH to the seconds since 1970 where there is no repository: %w", err)
		}
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is %q: want seconds since 1970", text)
	}
	return time.Unix(seconds, 0), nil
}

// packed are the files of the source tree that are in every archive, and their places in it. The programs of examples are
// those of the smoke test; those that made the models stay out.
var packed = map[string]string{
	"README.md": "README.md", "CHANGELOG.md": "CHANGELOG.md", "SECURITY.md": "SECURITY.md", "CONTRIBUTING.md": "CONTRIBUTING.md",
	"LICENSE": "LICENSE", "docs": "docs", "clients": "clients", "scripts/release/INSTALL.md": "INSTALL.md",
	"models": "examples/models", "scripts/release/requirements.txt": "examples/requirements.txt",
	"scripts/smoke.py": "examples/smoke.py", "scripts/smokemodels.py": "examples/smokemodels.py",
	"scripts/accumulate.py": "examples/accumulate.py", "scripts/streaming.py": "examples/streaming.py",
	"scripts/tritonserver.py": "examples/tritonserver.py",
}

// stage makes the folder of a bundle in build/package, with all that describes it.
func (t *tree) stage(b bundle) (folder string, err error) {
	folder = t.path("build", "package", b.name())
	if err := os.RemoveAll(folder); err != nil {
		return "", err
	}
	for from, to := range packed {
		if err := copyTree(t.path(from), filepath.Join(folder, to)); err != nil {
			return "", err
		}
	}
	programs := release.Programs(b.variant)
	for _, program := range programs {
		if err := copyFile(filepath.Join(t.installFor(b.target), program), filepath.Join(folder, program), 0o755); err != nil {
			return "", err
		}
	}
	if b.variant == "gpu" {
		if err := copyTree(t.path("scripts", "release", "add_onnxruntime_gpu.py"), filepath.Join(folder, "add_onnxruntime_gpu.py")); err != nil {
			return "", err
		}
	}
	return folder, t.describe(b, folder, programs)
}

// describe writes what says what is in a bundle: notices, bills of materials, manifest, hashes.
func (t *tree) describe(b bundle, folder string, programs []string) error {
	parts, err := t.parts(b, folder)
	if err != nil {
		return err
	}
	modified, err := t.epoch()
	if err != nil {
		return err
	}
	files, err := release.HashFiles(folder, programs...)
	if err != nil {
		return err
	}
	gcc, err := t.output(b.compiler, "--version")
	if err != nil {
		return err
	}
	gcc, _, _ = strings.Cut(gcc, "\n")
	manifest, err := release.NewManifest(folder, b.platform(), b.variant, t.commit(),
		map[string]string{"go": runtime.Version(), "c": gcc}, programs, parts)
	if err != nil {
		return err
	}
	bill := release.Bill{Name: manifest.Name, Version: manifest.Version, Variant: b.platform() + "-" + b.variant, Built: modified, Parts: parts, Files: files}
	for name, content := range map[string]func() ([]byte, error){
		release.NoticesFile:  func() ([]byte, error) { return []byte(release.Notices(parts)), nil },
		release.ManifestFile: manifest.JSON,
		release.CycloneFile:  bill.CycloneDX,
		release.SPDXFile:     bill.SPDX,
	} {
		text, err := content()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil {
			return err
		}
	}
	sums, err := release.Sums(folder)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, release.SumsFile), []byte(sums), 0o644)
}

// parts finds out what of others is in a bundle.
func (t *tree) parts(b bundle, folder string) ([]release.Part, error) {
	list, err := t.with("CGO_ENABLED=1", "GOARCH="+b.arch, "CC="+b.compiler).output("go", "list", "-deps",
		"-f", "{{with .Module}}{{$.Dir}}\t{{.Path}}\t{{.Version}}\t{{.Dir}}{{end}}", "./capi", "./cmd/tritonstateful")
	if err != nil {
		return nil, err
	}
	var sources []release.Source
	for line := range strings.Lines(list) {
		if fields := strings.Split(strings.TrimRight(line, "\n"), "\t"); len(fields) == 4 {
			sources = append(sources, release.Source{Folder: fields[0], Module: fields[1], Version: fields[2], ModuleFolder: fields[3]})
		}
	}
	root, err := t.output("go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	parts, err := release.GoParts(folder, []string{release.Library, release.Command}, sources, root)
	if err != nil || b.variant == "gpu" {
		return parts, err
	}
	wheel, err := t.wheel(b.target)
	if err != nil {
		return nil, err
	}
	metadata, err := onlyMatch(filepath.Join(wheel, "onnxruntime-*.dist-info", "METADATA"))
	if err != nil {
		return nil, err
	}
	ort, err := release.ORTPart(filepath.Join(wheel, "onnxruntime"), metadata)
	return append(parts, ort), err
}

// unpacked are names of files that are not copied: what Python, pip and pytest leave behind, and the programs that made the
// models.
var unpacked = regexp.MustCompile(`^(__pycache__|build|\..+|.+\.egg-info)$|models/[^/]+\.py$`)

// copyTree copies a file, or a folder without what is unpacked.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if path != from && (unpacked.MatchString(entry.Name()) || unpacked.MatchString(path)) {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(to, relative), 0o755)
		}
		return copyFile(path, filepath.Join(to, relative), 0o644)
	})
}

func copyFile(from, to string, mode fs.FileMode) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, content, cmp.Or(mode, 0o644))
}
