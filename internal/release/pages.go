package release

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	fence     = regexp.MustCompile("(?ms)^```.*?^```")
	inline    = regexp.MustCompile("`[^`\n]*`")
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headline  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	linkText  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	noAnchor  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	elsewhere = regexp.MustCompile(`^[a-z]+:`)
)

// CheckLinks reports each link of a Markdown page below folder to a file that is not there, or to a heading that its page does
// not have. Links to the web are not followed.
func CheckLinks(folder string) error {
	var wrong []error
	headings := map[string]map[string]bool{}
	err := filepath.WalkDir(folder, func(page string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(page) != ".md" {
			return err
		}
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		prose := inline.ReplaceAllString(fence.ReplaceAllString(string(text), ""), "")
		for _, found := range link.FindAllStringSubmatch(prose, -1) {
			if !elsewhere.MatchString(found[1]) && !leads(folder, page, found[1], headings) {
				relative, _ := filepath.Rel(folder, page)
				wrong = append(wrong, fmt.Errorf("%s links to %s, which is not there", relative, found[1]))
			}
		}
		return nil
	})
	return errors.Join(append(wrong, err)...)
}

// leads reports whether a link of a page leads to a file in folder, and to a heading if it names one. headings has those of
// the pages that were read before.
func leads(folder, page, to string, headings map[string]map[string]bool) bool {
	file, anchor, _ := strings.Cut(to, "#")
	target := page
	if file != "" {
		target = filepath.Join(filepath.Dir(page), file)
	}
	relative, err := filepath.Rel(folder, target)
	if err != nil || strings.HasPrefix(relative, "..") {
		return false
	}
	if anchor == "" || filepath.Ext(target) != ".md" {
		_, err := os.Stat(target)
		return err == nil
	}
	if headings[target] == nil {
		headings[target] = anchors(target)
	}
	return headings[target][anchor]
}

// anchors are those that GitHub and the generator of the site give to the headings of a page.
func anchors(page string) map[string]bool {
	found := map[string]bool{}
	text, _ := os.ReadFile(page) // of a page that is not there, none is found
	for _, h := range headline.FindAllStringSubmatch(fence.ReplaceAllString(string(text), ""), -1) {
		words := strings.ToLower(strings.TrimSpace(linkText.ReplaceAllString(h[1], "$1")))
		found[strings.ReplaceAll(noAnchor.ReplaceAllString(words, ""), " ", "-")] = true
	}
	return found
}
