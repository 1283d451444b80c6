package build

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/release"
	"tritonstateful/internal/version"
)

// staged makes and checks what go run build.go package would pack of what is built, and returns a copy of the folder of
// the first archive.
func staged(t *testing.T) (folder string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	tree := &tree{ctx: t.Context(), root: root}
	if _, err := os.Stat(filepath.Join(tree.installFor(host()), release.Command)); err != nil {
		t.Skip("nothing is built: go run build.go")
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	secrets, err := tree.secrets()
	require.NoError(t, err)
	for _, b := range slices.Backward(bundles(host())) {
		folder, err = tree.stage(b)
		require.NoError(t, err)
		require.NoError(t, release.Check(folder, secrets...), b.name())
	}
	spoilt := filepath.Join(t.TempDir(), "spoilt")
	require.NoError(t, os.CopyFS(spoilt, os.DirFS(folder)))
	return spoilt
}

// TestRelease makes what is packed, spoils it in each way that a check is for, and sees the check fail.
func TestRelease(t *testing.T) {
	folder := staged(t)
	var manifest map[string]any
	text, err := os.ReadFile(filepath.Join(folder, release.ManifestFile))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &manifest))
	require.Equal(t, version.Number, manifest["version"])
	require.Equal(t, "2.34", manifest["requires"].(map[string]any)["glibc"])
	page, err := os.ReadFile("../../docs/compatibility.md")
	require.NoError(t, err)
	for _, server := range manifest["tested_servers"].([]any) {
		s := server.(map[string]any)
		require.Contains(t, string(page), fmt.Sprintf("| %s | %s |", s["version"], s["release"]), "the table of servers that were run")
	}
	require.Contains(t, manifest["capabilities"].(map[string]any)["parameters"], "state_pairs")
	change := func(name string, with func(string) string) (restore func()) {
		path := filepath.Join(folder, name)
		before, err := os.ReadFile(path)
		require.NoError(t, err)
		after := with(string(before))
		require.NotEqual(t, string(before), after)
		require.NoError(t, os.WriteFile(path, []byte(after), 0o755))
		sums, err := release.Sums(folder)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, release.SumsFile), []byte(sums), 0o644))
		return func() { require.NoError(t, os.WriteFile(path, before, 0o755)) }
	}
	replace := func(old, with string) func(string) string {
		return func(s string) string { return strings.Replace(s, old, with, 1) }
	}
	for _, spoiled := range []struct {
		file    string
		with    func(string) string
		message string
	}{
		{release.NoticesFile, replace("=\ngithub.com/NVIDIA/go-nvml", "=\nexample.org/other"), "has no text about github.com/NVIDIA/go-nvml"},
		{release.CycloneFile, replace(`"name": "github.com/spf13/cobra"`, `"name": "github.com/spf13/viper"`), release.CycloneFile + " lists"},
		{release.SPDXFile, replace(`"versionInfo": "1.31.1"`, `"versionInfo": "1.31.0"`), release.SPDXFile + " lists"},
		{release.ManifestFile, replace(`"libstdc++.so.6"`, `"libstdc++.so.7"`), "needs libstdc++.so.6"},
		{release.ManifestFile, replace(`"glibc": "2.34"`, `"glibc": "2.31"`), "needs glibc 2.34"},
		{release.ManifestFile, replace(`linux-`, `linux-other-`), "is for EM_"},
		{"docs/quickstart.md", replace("(install.md)", "(instal.md)"), "docs/quickstart.md links to instal.md"},
		{"README.md", replace("(docs/performance.md#other-backends)", "(docs/performance.md#no-backends)"), "performance.md#no-backends, which is not there"},
		{release.Loader, replace("TRITONBACKEND_Finalize", "TRITONBACKEND_finalize"), "exports TRITONBACKEND_"},
	} {
		restore := change(spoiled.file, spoiled.with)
		require.ErrorContains(t, release.Check(folder), spoiled.message, spoiled.file)
		restore()
	}
	require.ErrorContains(t, release.Check(folder), "does not have the hashes")
	require.ErrorContains(t, release.Check(folder, "TRITONBACKEND_Finalize"), "which only the machine that built it knows")
}

// TestSignature signs with a key of its own, and sees a changed archive, and another signer, fail.
func TestSignature(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("there is no ssh-keygen")
	}
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	run := func(name string, args ...string) (string, error) {
		out, err := exec.Command(name, args...).CombinedOutput()
		return string(out), err
	}
	sign := func(args ...string) (string, error) {
		return run("sh", append([]string{"../../scripts/release/sign.sh"}, args...)...)
	}
	for _, key := range []string{"ours", "theirs"} {
		out, err := run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path(key))
		require.NoError(t, err, out)
	}
	public, err := os.ReadFile(path("ours.pub"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path("signers"), append([]byte("release@tritonstateful "), public...), 0o600))
	dist := path("dist")
	require.NoError(t, os.Mkdir(dist, 0o755))
	archive := filepath.Join(dist, "a.tar.gz")
	require.NoError(t, os.WriteFile(archive, []byte("an archive"), 0o600))
	sums, err := release.Sums(dist)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dist, release.SumsFile), []byte(sums), 0o600))

	out, err := sign("sign", path("theirs"), dist)
	require.NoError(t, err, out)
	_, err = sign("verify", path("signers"), dist)
	require.Error(t, err, "signed by another key")
	out, err = sign("sign", path("ours"), dist)
	require.NoError(t, err, out)
	_, err = sign("sign", path("none"), dist)
	require.Error(t, err, "there is no such key")
	out, err = sign("verify", path("signers"), dist)
	require.NoError(t, err, out)
	require.Contains(t, out, "a.tar.gz: OK")
	require.ElementsMatch(t, []string{"SHA256SUMS", "SHA256SUMS.sig", "a.tar.gz"}, names(t, dist))
	require.NoError(t, os.WriteFile(archive, []byte("another archive"), 0o600))
	_, err = sign("verify", path("signers"), dist)
	require.Error(t, err, "an archive changed")
	out, err = sign("sign")
	require.Error(t, err)
	require.Contains(t, out, "sign.sh verify ALLOWED_SIGNERS")
}

// TestNotEmulated: each test that is left out under the emulator is one of those that would run.
func TestNotEmulated(t *testing.T) {
	var tests strings.Builder
	for _, folder := range emulatedC {
		files, err := filepath.Glob(filepath.Join("../..", folder, "*_test.go"))
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			tests.Write(text)
		}
	}
	for _, left := range notEmulated {
		require.Contains(t, tests.String(), "\nfunc "+left.test+"(", left.test)
	}
}

// TestArchivesOfOneCommit: those of another one are not signed with the new ones.
func TestArchivesOfOneCommit(t *testing.T) {
	tree := &tree{root: t.TempDir()}
	require.NoError(t, tree.startDist("one"))
	require.NoError(t, os.WriteFile(filepath.Join(tree.dist(), "a.tar.gz"), nil, 0o600))
	require.NoError(t, tree.startDist("one"))
	require.Equal(t, []string{"a.tar.gz"}, names(t, tree.dist()))
	require.NoError(t, tree.startDist("two"))
	require.Empty(t, names(t, tree.dist()))
}

// names are those of the files of a folder.
func names(t *testing.T, folder string) (found []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, entry := range entries {
		found = append(found, entry.Name())
	}
	return found
}
