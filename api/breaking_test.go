//go:build contract

package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// change is a change of the contract, as oasdiff tells of it.
type change struct {
	ID, Text, Operation, Path string
	Level                     int
}

func (c change) String() string {
	return fmt.Sprintf("%s: %s %s: %s", c.ID, c.Operation, c.Path, c.Text)
}

// breaks is the level of changes that break clients. Below it are those that the rules of
// versions allow, such as a value that is added to an enum of answers.
const breaks = 3

// exception is an element of breaking.yaml.
type exception struct{ ID, About, Reason, Sunset string }

func (e exception) covers(c change) bool { return e.ID == c.ID && strings.Contains(c.Text, e.About) }

// TestNothingBreaksTheReleasedContract holds openapi.yaml against released.yaml, the contract
// of the last release: what a client could rely on stays, or stands in breaking.yaml.
func TestNothingBreaksTheReleasedContract(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("breaking.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var exceptions []exception
	if err := yaml.Unmarshal(text, &exceptions); err != nil {
		t.Fatal(err)
	}
	for _, e := range exceptions {
		if err := e.check(); err != nil {
			t.Error(err)
		}
	}
	unexcused, unused := excused(breakingChanges(t, absolute(t, "api/released.yaml"), absolute(t, "api/openapi.yaml")), exceptions)
	for _, c := range unexcused {
		t.Errorf("breaks clients: %s\nKeep what was released, or give the reason in api/breaking.yaml", c)
	}
	for _, e := range unused {
		t.Errorf("breaking.yaml excuses what has not changed: %s, %q", e.ID, e.About)
	}
}

// TestABreakingChangeIsSeen takes an operation away from the contract.
func TestABreakingChangeIsSeen(t *testing.T) {
	t.Parallel()
	released, err := os.ReadFile("released.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const old = "  /v1/sweeps:\n"
	if !bytes.Contains(released, []byte(old)) {
		t.Fatal("there is nothing to take away")
	}
	changed := filepath.Join(t.TempDir(), "changed.yaml")
	if err := os.WriteFile(changed, bytes.Replace(released, []byte(old), []byte("  /v1/brooms:\n"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	changes := breakingChanges(t, absolute(t, "api/released.yaml"), changed)
	if len(changes) != 1 || changes[0].Path != "/v1/sweeps" {
		t.Fatalf("%v", changes)
	}
	one := exception{changes[0].ID, "", "nobody sweeps", "at once"}
	if unexcused, unused := excused(changes, []exception{one}); len(unexcused)+len(unused) > 0 {
		t.Errorf("excused, and still %v, %v", unexcused, unused)
	}
	other := exception{changes[0].ID, "another sentence", "nobody sweeps", "at once"}
	if unexcused, unused := excused(changes, []exception{other}); len(unexcused) != 1 || len(unused) != 1 {
		t.Errorf("not excused, and %v, %v", unexcused, unused)
	}
}

func (e exception) check() error {
	if e.ID == "" || e.About == "" || e.Reason == "" {
		return fmt.Errorf("breaking.yaml: %+v needs id, about and reason", e)
	}
	if _, err := time.Parse(time.DateOnly, e.Sunset); err != nil && e.Sunset != "at once" && e.Sunset != "never" {
		return fmt.Errorf("breaking.yaml: %s: sunset is %q, must be a date, at once or never", e.ID, e.Sunset)
	}
	return nil
}

// excused returns the changes that no exception covers, and the exceptions that cover none.
func excused(changes []change, exceptions []exception) (unexcused []change, unused []exception) {
	used := make([]bool, len(exceptions))
	for _, c := range changes {
		covered := false
		for i, e := range exceptions {
			if e.covers(c) {
				covered, used[i] = true, true
			}
		}
		if !covered {
			unexcused = append(unexcused, c)
		}
	}
	for i, e := range exceptions {
		if !used[i] {
			unused = append(unused, e)
		}
	}
	return unexcused, unused
}

// breakingChanges asks oasdiff what breaks from one contract to the next.
func breakingChanges(t *testing.T, from, to string) (breaking []change) {
	t.Helper()
	command := exec.Command("go", "tool", "-modfile="+absolute(t, "tools/oasdiff/go.mod"), "oasdiff", "breaking", from, to, "--format", "json")
	var errs bytes.Buffer
	command.Stderr = &errs
	out, err := command.Output()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	var all []change
	if jsonErr := json.Unmarshal(out, &all); jsonErr != nil {
		t.Fatalf("%v, %v: %s", err, jsonErr, &errs)
	}
	for _, c := range all {
		if c.Level >= breaks {
			breaking = append(breaking, c)
		}
	}
	return breaking
}
