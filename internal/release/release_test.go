package release

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), mode))
}

// TestArchivesAreEqual: whenever, wherever and by whomever the files were written.
func TestArchivesAreEqual(t *testing.T) {
	var archives []string
	for i, umask := range []os.FileMode{0, 0o077} {
		folder := filepath.Join(t.TempDir(), "any")
		names := []string{"b/program", "a.txt", "b/a"}
		for _, name := range names {
			mode := os.FileMode(0o666)
			if name == "b/program" {
				mode = 0o777
			}
			write(t, filepath.Join(folder, name), "the content of "+name, mode&^umask)
		}
		old := time.Unix(int64(i), 0)
		require.NoError(t, os.Chtimes(filepath.Join(folder, "a.txt"), old, old))
		var b bytes.Buffer
		require.NoError(t, WriteArchive(&b, folder, "release-1", time.Unix(1_700_000_000, 5)))
		archives = append(archives, b.String())
	}
	require.Equal(t, archives[0], archives[1])

	path, to := filepath.Join(t.TempDir(), "a.tar.gz"), t.TempDir()
	write(t, path, archives[0], 0o600)
	require.NoError(t, Unpack(path, to))
	content, err := os.ReadFile(filepath.Join(to, "release-1", "b", "program"))
	require.NoError(t, err)
	require.Equal(t, "the content of b/program", string(content))
	info, err := os.Stat(filepath.Join(to, "release-1", "b", "program"))
	require.NoError(t, err)
	require.EqualValues(t, 0o755, info.Mode())
	sums, err := Sums(to)
	require.NoError(t, err)
	require.Equal(t, []string{"release-1/a.txt", "release-1/b/a", "release-1/b/program"}, everySecond(strings.Fields(sums)))
}

func everySecond(words []string) (found []string) {
	for i := 1; i < len(words); i += 2 {
		found = append(found, words[i])
	}
	return found
}

func TestArchiveHasPlainFilesOnly(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(folder, "link")))
	require.ErrorContains(t, WriteArchive(&bytes.Buffer{}, folder, "release", time.Unix(0, 0)), "release/link is not a plain file")
}

func TestLicenses(t *testing.T) {
	const mit = "Permission is hereby granted, free of charge, to any\nperson obtaining a copy of this software and"
	const two = "Redistribution and use in source and binary forms, with or without modification, are\npermitted"
	const three = two + " ... endorse or promote products derived from\n   this software without specific prior written permission"
	for want, texts := range map[string][]Text{
		"MIT":                      {{"LICENSE", mit}, {"NOTICE", "Licensed under the Apache License, Version 2.0"}},
		"BSD-2-Clause":             {{"LICENSE.md", two}},
		"BSD-3-Clause":             {{"COPYING", three}, {"PATENTS", mit}},
		"BSD-3-Clause AND MIT":     {{"LICENSE-BSD", three}, {"LICENSE-MIT", mit}},
		"Apache-2.0":               {{"LICENSE", "   Apache License\n   Version 2.0, January 2004"}},
		"FTL OR GPL-2.0-or-later":  {{"LICENSE", "your choice of exactly one of the following two licenses:\n\n  * The FreeType License"}, {"licenses/gpl.txt", "GNU"}},
		"BSD-3-Clause AND OFL-1.1": {{"LICENSE", three}, {"LICENSE-SIL", "SIL OPEN FONT LICENSE\nVersion 1.1"}},
	} {
		got, err := expression(texts)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := expression([]Text{{"LICENSE", "do what you like"}})
	require.ErrorContains(t, err, "no license that we know")
}

// TestTextsOfModules: those of the module, of a folder licenses, and of the packages that are compiled, and no others.
func TestTextsOfModules(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"LICENSE", "NOTICE.txt", "license.go", "README.md", "licenses/ftl.txt", "raster/internal/LICENSE", "unused/LICENSE"} {
		write(t, filepath.Join(root, name), name, 0o600)
	}
	texts, err := moduleTexts([]Source{
		{Folder: filepath.Join(root, "raster", "internal"), Module: "example.org/m", ModuleFolder: root},
		{Folder: "/usr/local/go/src/fmt"},
		{Folder: "/elsewhere", Module: "tritonstateful/clients/go", ModuleFolder: "/elsewhere"},
	})
	require.NoError(t, err)
	var names []string
	for _, text := range texts["example.org/m"] {
		names = append(names, text.Name)
	}
	require.Equal(t, []string{"LICENSE", "NOTICE.txt", "licenses/ftl.txt", "raster/internal/LICENSE"}, names)
	require.Len(t, texts, 1)
}

func bill() Bill {
	part := Part{Name: "example.org/m", Version: "v1.2.3", License: "MIT", Purl: "pkg:golang/example.org/m@v1.2.3", Files: []string{Command}, Texts: []Text{{"LICENSE", "the text\r\nof m\n"}}}
	return Bill{
		Name: "tritonstateful", Version: "1.0.0", Variant: "linux-x86_64-cpu", Built: time.Unix(1_700_000_000, 0),
		Parts: []Part{part}, Files: []File{{Command, strings.Repeat("a", 40), strings.Repeat("b", 64)}},
	}
}

// TestBillsAreEqual: the same content gives the same bytes, and other content another ID.
func TestBillsAreEqual(t *testing.T) {
	first, second, other := bill(), bill(), bill()
	other.Files[0].SHA256 = strings.Repeat("c", 64)
	require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, first.id())
	for _, write := range []func(*Bill) ([]byte, error){(*Bill).CycloneDX, (*Bill).SPDX} {
		one, err := write(&first)
		require.NoError(t, err)
		same, err := write(&second)
		require.NoError(t, err)
		require.Equal(t, string(one), string(same))
		another, err := write(&other)
		require.NoError(t, err)
		require.NotEqual(t, string(one), string(another))
		require.Contains(t, string(one), "2023-11-14T22:13:20Z")
		require.True(t, json.Valid(one))
	}
	require.Contains(t, Notices(first.Parts), "=\nexample.org/m v1.2.3 (MIT)\nIn: bin/tritonstateful\n")
	require.Contains(t, Notices(first.Parts), "--- LICENSE ---\n\nthe text\nof m\n")
	first.Parts[0].Texts[0].Content = "copyright \xa9 someone"
	require.Contains(t, Notices(first.Parts), "copyright © someone")
}
