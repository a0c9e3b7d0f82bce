package devstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// fleetBinaries are the processes of a fleet.
var fleetBinaries = []string{"api", "worker", "scheduler"}

// Binaries returns the folder with the fleet's binaries. When they are beside this
// program, and no tags are given, it is that folder. Otherwise (under go run, and
// in tests) it builds them into dir, from the module of the working directory.
func Binaries(ctx context.Context, dir string, tags ...string) (string, error) {
	if self, err := os.Executable(); err == nil && len(tags) == 0 {
		beside := filepath.Dir(self)
		complete := true
		for _, name := range fleetBinaries {
			complete = complete && executable(filepath.Join(beside, name))
		}
		if complete {
			return beside, nil
		}
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", err
	}
	args := []string{"build", "-tags", strings.Join(tags, ","), "-o", dir + string(filepath.Separator)}
	for _, name := range fleetBinaries {
		args = append(args, "./cmd/"+name)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("devstack: go build: %w\n%s", err, out)
	}
	return dir, nil
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Path}} {{.Dir}}", "triprize").Output()
	path, dir, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if err != nil || path != "triprize" {
		return "", errors.New("devstack: the binaries api, worker and scheduler are not beside this one, and the working directory is not in Triprize's module, so they cannot be built; run: make build")
	}
	return dir, nil
}
