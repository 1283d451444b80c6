package release

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// SumsFile has the SHA-256 of every other file of a folder, as sha256sum prints and checks them.
const SumsFile = "SHA256SUMS"

// WriteArchive packs a folder as a .tar.gz. The bytes depend on nothing but the names and contents of the files, which of
// them are programs, name, the folder's name in the archive, and modified, the time that all files get.
func WriteArchive(w io.Writer, folder, name string, modified time.Time) error {
	compressed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	packed := tar.NewWriter(compressed)
	// WalkDir goes through names in their order.
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		return addFile(packed, path, filepath.Join(name, relative), entry, modified)
	})
	if err != nil {
		return fmt.Errorf("pack %s: %w", name, err)
	}
	return errors.Join(packed.Close(), compressed.Close())
}

func addFile(packed *tar.Writer, path, name string, entry fs.DirEntry, modified time.Time) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	header := &tar.Header{Name: name, Mode: 0o644, ModTime: modified.UTC().Truncate(time.Second), Format: tar.FormatUSTAR}
	if info.Mode()&0o100 != 0 {
		header.Mode = 0o755
	}
	if entry.IsDir() {
		header.Typeflag, header.Name = tar.TypeDir, name+"/"
		return packed.WriteHeader(header)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a plain file", name)
	}
	header.Size = info.Size()
	if err := packed.WriteHeader(header); err != nil {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(packed, file)
	return err
}

// Unpack writes the files of an archive to a folder, which must be empty or new.
func Unpack(archive, folder string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	compressed, err := gzip.NewReader(file)
	if err != nil {
		return fmt.Errorf("unpack %s: %w", archive, err)
	}
	packed := tar.NewReader(compressed)
	for {
		header, err := packed.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("unpack %s: %w", archive, err)
		}
		if !filepath.IsLocal(header.Name) {
			return fmt.Errorf("unpack %s: %s is outside of the archive", archive, header.Name)
		}
		if err := unpackFile(filepath.Join(folder, header.Name), header, packed); err != nil {
			return fmt.Errorf("unpack %s: %w", archive, err)
		}
	}
}

func unpackFile(path string, header *tar.Header, content io.Reader) error {
	if header.Typeflag == tar.TypeDir {
		return os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, header.FileInfo().Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}

// Sums returns the text of a SHA256SUMS for all other files below a folder.
func Sums(folder string) (string, error) {
	var lines strings.Builder
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(folder, path)
		if err != nil || relative == SumsFile || strings.HasPrefix(relative, SumsFile+".") {
			return err
		}
		sum, err := sumFile(path)
		fmt.Fprintf(&lines, "%s  %s\n", sum, relative)
		return err
	})
	return lines.String(), err
}

func sumFile(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	h := sha256.New()
	_, err = io.Copy(h, file)
	return fmt.Sprintf("%x", h.Sum(nil)), err
}
