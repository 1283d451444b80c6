package procstat

import (
	"math"
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	// A name with blanks and parentheses must not shift the fields.
	stat := []byte("42 (a (b) c) S 7 42 42 0 -1 4194304 1 2 3 4 150 50 0 0 20 0 9 0 100 123456 33 18446744073709551615 1 1\n")
	got, err := parse(stat)
	if err != nil {
		t.Fatal(err)
	}
	if want := (process{pid: 42, parent: 7, cpu: 2 * time.Second, rssPages: 33}); got != want {
		t.Errorf("parsed %+v, want %+v", got, want)
	}
	for _, bad := range []string{"", "42", "42 (x) S 1 2", "x (x) S 7 42 42 0 -1 0 1 2 3 4 1 5 0 0 20 0 9 0 100 1 33 1"} {
		if _, err := parse([]byte(bad)); err == nil {
			t.Errorf("parsed %q without an error", bad)
		}
	}
}

func TestReadTreeCountsChildren(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	usage, err := ReadTree(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if usage.Children != 1 || usage.RSSBytes == 0 {
		t.Errorf("usage %+v, want one child and some memory", usage)
	}
}

func TestReadTreeOfNoProcess(t *testing.T) {
	if _, err := ReadTree(math.MaxInt32); err == nil {
		t.Error("read a process that cannot exist")
	}
}
