package build

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// site makes build/site/html from README.md and the pages that it leads to, with the
// generator of scripts/requirements-site.txt, which has an environment of its own. A link
// that leads nowhere, or a page that mkdocs.yml does not list, is an error.
func (t *tree) site() error {
	const pinned = "scripts/requirements-site.txt"
	folder := t.path("build", "site")
	generator := filepath.Join(folder, "venv", "bin", "mkdocs")
	pins, err := t.contents(pinned)
	if err != nil {
		return err
	}
	if err := t.refresh(generator, pins, func() error {
		python, err := t.findPython()
		if err != nil {
			return err
		}
		environment := filepath.Join(folder, "venv")
		return inOrder(
			func() error { return t.run(python, "-m", "venv", environment) },
			func() error {
				return t.run(filepath.Join(environment, "bin", "pip"), "--disable-pip-version-check", "install", "--quiet", "-r", pinned)
			},
		)
	}); err != nil {
		return err
	}
	if err := t.copyPages(filepath.Join(folder, "pages")); err != nil {
		return err
	}
	if err := t.with("NO_MKDOCS_2_WARNING=1").run(generator, "build", "--strict", "--clean"); err != nil {
		return err
	}
	fmt.Println("made", filepath.Join("build", "site", "html", "index.html"))
	return nil
}

// relativeLink is a link of a page to another file, with or without an anchor.
var relativeLink = regexp.MustCompile(`\]\(([^)#:\s]+)`)

// linkedFiles returns README.md and the files that pages link to, by their paths in root, and
// all files of docs: a page there that no other one leads to is then noticed by the generator.
func linkedFiles(root string) ([]string, error) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*"))
	if err != nil {
		return nil, err
	}
	files := []string{"README.md"}
	for _, page := range pages {
		files = append(files, filepath.Join("docs", filepath.Base(page)))
	}
	for i := 0; i < len(files); i++ {
		if filepath.Ext(files[i]) != ".md" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, files[i]))
		if err != nil {
			return nil, err
		}
		for _, link := range relativeLink.FindAllSubmatch(text, -1) {
			target := filepath.Join(filepath.Dir(files[i]), string(link[1]))
			if _, err := os.Stat(filepath.Join(root, target)); err == nil && !slices.Contains(files, target) {
				files = append(files, target)
			}
		}
	}
	return files, nil
}

// copyPages copies them to a folder, in which they have the same paths. Links that read as
// the name of a page, for those who read the source, read as its title there.
func (t *tree) copyPages(folder string) error {
	files, err := linkedFiles(t.root)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	for _, file := range files {
		to := filepath.Join(folder, file)
		if strings.HasPrefix(file, "..") {
			return fmt.Errorf("a page links to %s, which is outside of the repository", file)
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := t.run("cp", "-rL", t.path(file), to); err != nil {
			return err
		}
		if filepath.Ext(file) == ".md" {
			if err := t.nameTitles(file, to); err != nil {
				return err
			}
		}
	}
	return nil
}

var (
	namedLink = regexp.MustCompile(`\[[\w/]*[\w-]+\.md\]\(([^)#\s]+)`)
	title     = regexp.MustCompile(`(?m)^# (.+)$`)
)

// nameTitles replaces the texts of links that are names of pages in the copy of a page.
func (t *tree) nameTitles(page, to string) error {
	text, err := os.ReadFile(to)
	if err != nil {
		return err
	}
	text = namedLink.ReplaceAllFunc(text, func(link []byte) []byte {
		target := string(namedLink.FindSubmatch(link)[1])
		linked, err := os.ReadFile(t.path(filepath.Dir(page), target))
		if err != nil {
			return link // the generator reports it
		}
		if heading := title.FindSubmatch(linked); heading != nil {
			return fmt.Appendf(nil, "[%s](%s", heading[1], target)
		}
		return link
	})
	return os.WriteFile(to, text, 0o600)
}
