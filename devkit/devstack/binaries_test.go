package devstack

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// installed copies the test binary to a new folder and puts programs beside it.
func installed(t *testing.T, beside ...string) (self string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range beside {
		program(t, dir, name, "")
	}
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	from, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = from.Close() }()
	defer noForks()()
	to, err := os.OpenFile(filepath.Join(dir, "triprize"), os.O_CREATE|os.O_WRONLY, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return to.Name()
}

// module writes a module of Triprize's name, whose programs print their tags.
func module(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	files := map[string]string{"go.mod": "module triprize\n\ngo 1.21\n", "internal/x/x.go": "package x\n"}
	for _, name := range fleetBinaries {
		files["cmd/"+name+"/main.go"] = "package main\n\nfunc main() { println(\"" + name + "\" + tag) }\n"
		files["cmd/"+name+"/with.go"] = "//go:build failpoint\n\npackage main\n\nconst tag = \" with failpoints\"\n"
		files["cmd/"+name+"/without.go"] = "//go:build !failpoint\n\npackage main\n\nconst tag = \"\"\n"
	}
	for name, content := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// findBinaries asks a copy of this program that runs in dir.
func findBinaries(t *testing.T, self, dir, target, tags string) told {
	t.Helper()
	cmd := exec.Command(self)
	cmd.Dir = dir
	return playBy(t, cmd, "find binaries", dirVariable+"="+target, tagsVariable+"="+tags, "GOWORK=off", "GOFLAGS=").told
}

func TestBinariesBesideTheProgramAreTaken(t *testing.T) {
	t.Parallel()
	self := installed(t, "api", "worker", "scheduler")
	if found := findBinaries(t, self, t.TempDir(), t.TempDir(), ""); found.Error != "" || found.Dir != filepath.Dir(self) {
		t.Errorf("got %+v", found)
	}
}

func TestBinariesThatAreNotThereAreBuilt(t *testing.T) {
	t.Parallel()
	source := module(t)
	for name, c := range map[string]struct {
		beside []string
		tags   string
		want   string
	}{
		"one is missing":          {[]string{"api", "scheduler"}, "", ""},
		"others than those there": {[]string{"api", "worker", "scheduler"}, "failpoint", " with failpoints"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := t.TempDir()
			found := findBinaries(t, installed(t, c.beside...), filepath.Join(source, "internal", "x"), target, c.tags)
			if found.Error != "" || found.Dir != target {
				t.Fatalf("got %+v", found)
			}
			for _, name := range fleetBinaries {
				out, err := exec.Command(filepath.Join(target, name)).CombinedOutput()
				if err != nil || string(out) != name+c.want+"\n" {
					t.Errorf("%s is %s, %v", name, out, err)
				}
			}
		})
	}
}

func TestWithoutBinariesAndSourceTheErrorSaysWhatToDo(t *testing.T) {
	t.Parallel()
	self := installed(t)
	found := findBinaries(t, self, t.TempDir(), t.TempDir(), "")
	for _, want := range []string{"api, worker and scheduler", "make build"} {
		if !strings.Contains(found.Error, want) {
			t.Errorf("%q does not say %q", found.Error, want)
		}
	}
	source := module(t)
	if err := os.WriteFile(filepath.Join(source, "cmd/worker/main.go"), []byte("package main\n\nfunc main() { typo() }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if found := findBinaries(t, self, source, t.TempDir(), ""); !strings.Contains(found.Error, "typo") {
		t.Errorf("what the compiler says is not in %q", found.Error)
	}
}
