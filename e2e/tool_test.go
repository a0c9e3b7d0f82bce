package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"triprize/internal/entry/upkeep"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
	"triprize/migrations"
)

// programs are those of one build, in a folder beside or among those of the fleet.
type programs struct {
	sync.Once
	dir string
	err error
}

// build builds all programs into a folder of the fleet's, unless they are there, and returns it.
func (p *programs) build(t *testing.T, folder string, flags ...string) string {
	t.Helper()
	p.Do(func() {
		built, err := fleet.Binaries() // makes the folder that is removed at the end
		if err != nil {
			p.err = err
			return
		}
		p.dir = filepath.Join(built, folder)
		if _, err := os.Stat(filepath.Join(p.dir, "triprize")); err == nil && folder == "" {
			return
		}
		args := append([]string{"build", "-ldflags", "-s -w", "-o", p.dir + "/"}, flags...)
		if out, err := exec.Command("go", append(args, "triprize/cmd/...")...).CombinedOutput(); err != nil {
			p.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	if p.err != nil {
		t.Fatal(p.err)
	}
	return p.dir
}

var withFailpoints programs

// triprize returns the operator's tool, with the fleet beside it.
func triprize(t *testing.T) string {
	t.Helper()
	return filepath.Join(withFailpoints.build(t, "", "-tags", "failpoint"), "triprize")
}

// operating is the environment of an operator's commands.
func operating(s *fleet.System) []string {
	return []string{"TRIPRIZE_API=" + s.URLs[0], "TRIPRIZE_KEY=" + s.Operator}
}

// run runs the tool to its end.
func run(t *testing.T, env []string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	return runCommand(t, exec.Command(triprize(t), args...), env)
}

func runCommand(t *testing.T, cmd *exec.Cmd, env []string) (stdout, stderr string, status int) {
	t.Helper()
	cmd.Env = append(os.Environ(), env...)
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

func TestMigrationsAndKeysByHand(t *testing.T) {
	t.Parallel()
	settings := servers.Settings(t)
	env := []string{"TRIPRIZE_POSTGRES_URL=" + settings.Postgres.URL, "TRIPRIZE_POSTGRES_START_WAIT=0"} // and nothing that they do not use
	worker := append(slices.Clip(env), "TRIPRIZE_REDIS_URL="+settings.Redis.URL, "TRIPRIZE_DRAW_SECRET_KEY="+settings.Draw.SecretKey)
	expect := func(want string, args ...string) string {
		t.Helper()
		stdout, stderr, status := run(t, env, args...)
		if status != 0 || !strings.Contains(stdout, want) {
			t.Errorf("%v: status %d\n%s%s", args, status, stdout, stderr)
		}
		return stdout
	}
	expect("up to date", "migrate", "up")
	newest := fmt.Sprintf("%05d", newestMigration(t))
	expect(newest, "migrate", "down")
	expect("pending", "migrate", "status")
	if _, stderr, status := runBeside(t, worker, "worker"); status != 1 || !strings.Contains(stderr, "triprize migrate up") {
		t.Errorf("a worker on an older schema: status %d, %s", status, stderr)
	}
	expect(newest, "migrate", "up")
	db := servers.Pool(t, settings)
	if _, err := db.Exec(t.Context(), `CREATE TABLE kept AS SELECT * FROM goose_db_version; DELETE FROM goose_db_version WHERE version_id > 107;
		INSERT INTO wallets (id, owner_id, client, currency) VALUES (gen_random_uuid(), 'alice', 'shop', 'JPY')`); err != nil {
		t.Fatal(err) // the migration with the wallets is the newest one
	}
	if _, stderr, status := run(t, env, "migrate", "down"); status != 1 || !strings.Contains(stderr, "wallets: 1 row") || !strings.Contains(stderr, "--destroy-data") {
		t.Errorf("wallets with money in them: status %d, %s", status, stderr)
	}
	servers.Exec(t, db, `INSERT INTO goose_db_version SELECT * FROM kept WHERE version_id > 107`)
	expect("", "audit")

	key := strings.TrimSpace(expect("tp_", "key", "create", "--role", "app", "--client", "shop-1"))
	prefix := strings.Split(key, "_")[1]
	if list := expect(prefix, "key", "list"); strings.Contains(list, strings.Split(key, "_")[2]) || !strings.Contains(list, "never") {
		t.Errorf("the list shows the secret, or that the key was used: %s", list)
	}
	expect("", "key", "revoke", prefix)
	expect(`"revoked_at":"20`, "key", "list", "--json")
	for _, args := range [][]string{{"key", "create", "--role", "king", "--client", "x"}, {"key", "create", "--role", "app", "--client", "No Spaces"},
		{"key", "create"}, {"key", "revoke", "000000000000"}, {"migrate", "sideways"}, {"nonsense"}} {
		if _, stderr, status := run(t, env, args...); status == 0 || stderr == "" {
			t.Errorf("%v: status %d, %q", args, status, stderr)
		}
	}
}

func TestTheAuditFindsWhatIsBrokenAndSaysSo(t *testing.T) {
	t.Parallel()
	settings := servers.Settings(t)
	env := []string{"TRIPRIZE_POSTGRES_URL=" + settings.Postgres.URL}
	db, err := postgres.Open(t.Context(), settings.Postgres, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	id := fixture.Campaign(t, db, fixture.Draft(3))
	fixture.Sell(t, db, id, 2)
	if stdout, stderr, status := run(t, env, "audit"); status != 0 || !strings.Contains(stdout, "invariants hold") {
		t.Errorf("a sound database: status %d, %s%s", status, stdout, stderr)
	}
	servers.Exec(t, db, `UPDATE campaigns SET positions_sold = 3 WHERE id = $1`, id)
	stdout, stderr, status := run(t, env, "audit")
	if status != 1 || !strings.Contains(stdout, "counts 3 sold") || !strings.Contains(stderr, "1 violations") {
		t.Errorf("a counter that is wrong: status %d, %s%s", status, stdout, stderr)
	}
	stdout, _, status = run(t, env, "audit", "--json")
	var report struct {
		OK         bool
		Invariants int
		Violations []struct{ Invariant, Subject string }
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || status != 1 || report.OK || report.Invariants < 20 || len(report.Violations) != 1 {
		t.Errorf("as JSON: status %d, %v, %s", status, err, stdout)
	}
	if stdout, stderr, status := run(t, env, "audit", "--stored"); status != 0 || !strings.Contains(stdout, "no stored violations") {
		t.Errorf("no audit has run: status %d, %s%s", status, stdout, stderr)
	}
	if _, err := upkeep.NewAuditor(db, servers.Logger(t)).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, status = run(t, env, "audit", "--stored")
	if status != 1 || !strings.Contains(stdout, "counters of "+id.String()) || !strings.Contains(stdout, "counts 3 sold") || !strings.Contains(stderr, "1 violations") {
		t.Errorf("what the sweep has found: status %d, %s%s", status, stdout, stderr)
	}
	if stdout, _, status := run(t, env, "audit", "--stored", "--json"); status != 1 || !strings.Contains(stdout, `"check":"counters"`) {
		t.Errorf("as JSON: status %d, %s", status, stdout)
	}
	if _, stderr, status := run(t, env, "audit", "--limit", "0"); status != 1 || !strings.Contains(stderr, "--limit") {
		t.Errorf("a limit of nothing: status %d, %s", status, stderr)
	}
}

// newestMigration returns the number of the last migration there is.
func newestMigration(t *testing.T) int {
	t.Helper()
	files, err := fs.Glob(migrations.Files, "*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	number, _, _ := strings.Cut(files[len(files)-1], "_")
	newest, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	return newest
}

// runBeside runs a binary of the fleet that is expected to end by itself.
func runBeside(t *testing.T, env []string, name string) (stdout, stderr string, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(filepath.Dir(triprize(t)), name))
	cmd.Env = append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run()
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}
