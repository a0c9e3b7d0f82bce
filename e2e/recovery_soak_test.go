//go:build soak

package e2e

import (
	"io/fs"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"triprize/devkit/devstack"
	"triprize/internal/platform/schema"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// The commands of the page about deployment bring back what was sold before a second, and nothing after it.
func TestTheArchiveRestoresToTheSecondAsThePageSays(t *testing.T) {
	t.Parallel()
	_, text, found := strings.Cut(document(t, "../docs/deployment.md"), "<!-- a test takes the commands of this chapter")
	if !found {
		t.Fatal("the commands are gone")
	}
	commands := strings.SplitAfter(blocks(text), "echo\n") // blocks ends each with this
	stack := startStack(t, openDir(t))
	dir, settings := openDir(t), servers.Defaults(t)
	archive, base, restored := filepath.Join(dir, "archive"), filepath.Join(dir, "base"), filepath.Join(dir, "new", "postgres")
	settings.Postgres.URL = stack.Postgres.URL("triprize")
	if err := stack.Postgres.CreateDatabase(t.Context(), "triprize"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{archive, filepath.Dir(restored)} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	giveToPostgres(t, archive)
	env := []string{"SUPERUSER_URL=" + settings.Postgres.URL, "ARCHIVE=" + archive, "BASE=" + base, "RESTORED=" + restored}

	paste(t, commands[0], env...)
	if err := stack.Postgres.RestartAfter(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	db := servers.Pool(t, settings)
	if err := schema.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	fixture.SellOut(t, db, fixture.Campaign(t, db, fixture.Draft(3)))
	paste(t, commands[1], env...)
	fixture.SellOut(t, db, fixture.Campaign(t, db, fixture.Draft(4))) // in the log alone
	until := servers.Value[time.Time](t, db, `SELECT clock_timestamp()`)
	fixture.SellOut(t, db, fixture.Campaign(t, db, fixture.Draft(2))) // too late
	last := servers.Value[string](t, db, `SELECT pg_walfile_name(pg_switch_wal())`)
	servers.Eventually(t, "the log is in the archive", func() bool {
		_, err := os.Stat(filepath.Join(archive, last))
		return err == nil
	})
	paste(t, commands[2], append(env, "TIME="+until.UTC().Format("2006-01-02 15:04:05.999999-07"))...)
	giveToPostgres(t, restored)
	at, _ := url.Parse(settings.Postgres.URL)
	password, _ := at.User.Password()
	if err := os.WriteFile(filepath.Join(dir, "new", "postgres.password"), []byte(password), 0o600); err != nil {
		t.Fatal(err)
	}

	again := startStack(t, filepath.Join(dir, "new"))
	settings.Postgres.URL = again.Postgres.URL("triprize")
	back := servers.Pool(t, settings)
	servers.Eventually(t, "the recovery has ended", func() bool { return !servers.Value[bool](t, back, `SELECT pg_is_in_recovery()`) })
	if sold := servers.Value[int](t, back, `SELECT count(*)::int FROM positions WHERE state = 'sold'`); sold != 6+10 {
		t.Errorf("%d positions are sold", sold)
	}
	fixture.Sound(t, back)
}

// startStack starts servers whose data is in a folder.
func startStack(t *testing.T, dir string) *devstack.Stack {
	t.Helper()
	stack, err := devstack.Start(t.Context(), devstack.Options{Dir: dir, Unsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stack.Stop(); err != nil {
			t.Error(err)
		}
	})
	return stack
}

// giveToPostgres gives a folder to the user of Postgres, which never runs as root.
func giveToPostgres(t *testing.T, dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		return
	}
	owner, err := user.Lookup("postgres")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(owner.Uid)
	gid, _ := strconv.Atoi(owner.Gid)
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chown(path, uid, gid)
	})
	if err != nil {
		t.Fatal(err)
	}
}
