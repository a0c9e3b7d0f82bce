package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { fleet.Main(m) }

// released builds the programs as users have them, without failpoints, into a folder of the fleet's.
var released = sync.OnceValues(func() (dir string, err error) {
	if dir, err = fleet.Binaries(); err != nil { // makes the folder that is removed at the end
		return "", err
	}
	dir = filepath.Join(dir, "release")
	if out, err := exec.Command("go", "build", "-ldflags", "-s -w", "-o", dir+"/", "triprize/cmd/...").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return dir, nil
})

// triprize returns the operator's tool, with the fleet beside it.
func triprize(t *testing.T) string {
	t.Helper()
	dir, err := fleet.Binaries()
	servers.NoError(t, err)
	return filepath.Join(dir, "triprize")
}

// run runs the tool to its end.
func run(t *testing.T, env []string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	return runCommand(t, exec.Command(triprize(t), args...), env)
}

func runCommand(t *testing.T, cmd *exec.Cmd, env []string) (stdout, stderr string, status int) {
	t.Helper()
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // Run returns it bare
		return out.String(), errs.String(), exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), 0
}

func TestEveryProgramSaysItsVersion(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"api", "worker", "scheduler", "triprize", "triprize-dev"} {
		out, err := exec.Command(filepath.Join(filepath.Dir(triprize(t)), name), "--version").Output() // without any setting
		if line := string(out); err != nil || !regexp.MustCompile(`^`+name+` \S+ \(go\S+, \w+/\w+\)\n$`).MatchString(line) {
			t.Errorf("%s: %q, %v", name, line, err)
		}
	}
}

// terminate asks a process for an orderly end.
const terminate = syscall.SIGTERM

// processState returns the state letter of a process: T is stopped.
func processState(pid int) string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(string(data), ") ") // the name can have blanks
	state, _, _ := strings.Cut(after, " ")
	return state
}

// Only the api links the HTTP server: the others compile, link and start without it. None has what plays the world in development.
func TestTheProgramsOfAnInstallationLinkOnlyWhatTheyNeed(t *testing.T) {
	t.Parallel()
	for name, serves := range map[string]bool{"api": true, "worker": false, "scheduler": false, "triprize": false} {
		out, err := exec.Command("go", "list", "-deps", "triprize/cmd/"+name).Output()
		if linked := string(out); err != nil || strings.Contains(linked, "github.com/gofiber/fiber/v2\n") != serves || strings.Contains(linked, "triprize/devkit") || strings.Contains(linked, "triprize/sandbox") {
			t.Errorf("%s links Fiber, or not, or what is for development: %v", name, err)
		}
	}
}
