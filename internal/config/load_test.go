package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"triprize/configs"
)

// required gives the settings that have no default.
func required(t *testing.T) {
	t.Setenv("TRIPRIZE_POSTGRES_URL", "postgres://localhost/triprize")
	t.Setenv("TRIPRIZE_REDIS_URL", "redis://localhost:6379/0")
}

func TestTheDocumentsTimeoutsAreTheDefaults(t *testing.T) {
	required(t)
	s, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2]time.Duration{
		"statement": {s.Postgres.StatementTimeout, 10 * time.Second},
		"lock":      {s.Postgres.LockTimeout, 3 * time.Second},
		"connect":   {s.Postgres.ConnectTimeout, 5 * time.Second},
		"idle":      {s.Postgres.IdleConnectionTimeout, 30 * time.Second},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s timeout: %v, the documents say %v", name, pair[0], pair[1])
		}
	}
}

func TestEnvironmentWinsOverFileWinsOverDefault(t *testing.T) {
	required(t)
	file := write(t, "worker:\n  lanes: 7\n  batch_size: 9\n")
	t.Setenv("TRIPRIZE_WORKER_LANES", "8")
	s, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if s.Worker.Lanes != 8 || s.Worker.BatchSize != 9 || s.Worker.Concurrency != 128 {
		t.Errorf("got %+v", s.Worker)
	}
	t.Setenv(FileVariable, file)
	if s, err = Load(""); err != nil || s.Worker.BatchSize != 9 {
		t.Errorf("the file named by %s was not read: %v, %+v", FileVariable, err, s.Worker)
	}
}

func TestBadSettingsAreRefusedWithNameAndReason(t *testing.T) {
	for name, c := range map[string]struct {
		env  [2]string
		file string
		want []string
	}{
		"unknown in file":    {file: "worker:\n  lames: 7\n", want: []string{"worker.lames", "unknown"}},
		"unknown section":    {file: "wroker:\n  lanes: 7\n", want: []string{"wroker.lanes", "unknown"}},
		"unknown variable":   {env: [2]string{"TRIPRIZE_WORKER_LAMES", "7"}, want: []string{"TRIPRIZE_WORKER_LAMES", "unknown"}},
		"out of bounds":      {env: [2]string{"TRIPRIZE_WORKER_LANES", "0"}, want: []string{"worker.lanes", "TRIPRIZE_WORKER_LANES", "at least 1"}},
		"not a number":       {env: [2]string{"TRIPRIZE_WORKER_LANES", "many"}, want: []string{"worker.lanes", "cannot parse"}},
		"not a duration":     {file: "draw:\n  lease: soon\n", want: []string{"draw.lease", "invalid duration"}},
		"not a choice":       {env: [2]string{"TRIPRIZE_LOG_FORMAT", "xml"}, want: []string{"log.format", "json text"}},
		"missing":            {env: [2]string{"TRIPRIZE_POSTGRES_URL", ""}, want: []string{"postgres.url", "required"}},
		"two in conflict":    {env: [2]string{"TRIPRIZE_WORKER_HEARTBEAT_TTL", "1s"}, want: []string{"worker.heartbeat_ttl", "more than"}},
		"not an address":     {env: [2]string{"TRIPRIZE_API_LISTEN", "8080"}, want: []string{"api.listen", "host:port"}},
		"a short secret":     {env: [2]string{"TRIPRIZE_DRAW_SECRET_KEY", "abcd"}, want: []string{"draw.secret_key", "64 hex digits"}},
		"not YAML":           {file: "worker: [", want: []string{"settings file"}},
		"a scalar for a map": {file: "worker: 7\n", want: []string{"worker", "unknown"}},
	} {
		t.Run(name, func(t *testing.T) {
			required(t)
			if c.env[0] != "" {
				t.Setenv(c.env[0], c.env[1])
			}
			file := ""
			if c.file != "" {
				file = write(t, c.file)
			}
			_, err := Load(file)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

func TestASecretIsNotRepeatedInTheReason(t *testing.T) {
	required(t)
	t.Setenv("TRIPRIZE_DRAW_SECRET_KEY", "hunter2")
	if _, err := Load(""); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

func TestTheFileNamesEverySettingWithAComment(t *testing.T) {
	lines := strings.Split(string(configs.Defaults), "\n")
	sections := reflect.TypeFor[Settings]()
	for i := range sections.NumField() {
		section := sections.Field(i)
		at := slices.Index(lines, section.Tag.Get("mapstructure")+":")
		if at < 0 {
			t.Fatalf("the file has no section %s", section.Tag.Get("mapstructure"))
		}
		for j := range section.Type.NumField() {
			name := section.Type.Field(j).Tag.Get("mapstructure")
			found := slices.IndexFunc(lines[at+1:], func(line string) bool {
				return strings.HasPrefix(line, "  "+name+":") && strings.Contains(line, " # ")
			})
			end := slices.Index(lines[at:], "")
			if found < 0 || end >= 0 && found > end {
				t.Errorf("the file has no commented line for %s.%s", section.Tag.Get("mapstructure"), name)
			}
		}
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "triprize.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
