// Package compose checks docker-compose.yml and its surroundings without
// Docker: Compose's own loader reads the file, and the tests hold it against
// what the programs need.
package compose

import (
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/docker/go-units"
	"go.yaml.in/yaml/v3"
)

const root = "../.."

func load(t *testing.T, env map[string]string) (*types.Project, error) {
	t.Helper()
	details := types.ConfigDetails{WorkingDir: root, ConfigFiles: types.ToConfigFiles([]string{filepath.Join(root, "docker-compose.yml")}), Environment: env}
	return loader.LoadWithContext(t.Context(), details)
}

func project(t *testing.T) *types.Project {
	t.Helper()
	p, err := load(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var fleet = []string{"api", "api2", "worker", "scheduler"}

// value is that of a variable of a service; empty if it is not set.
func value(service types.ServiceConfig, variable string) string {
	if v := service.Environment[variable]; v != nil {
		return *v
	}
	return ""
}

func line(service types.ServiceConfig) string {
	return strings.Join(slices.Concat(service.Entrypoint, service.Command), " ")
}

// described says what a service waits for, which of our variables it has a value for, and what is special.
func described(s types.ServiceConfig) string {
	var words []string
	add := func(is bool, word string) {
		if is {
			words = append(words, word)
		}
	}
	for on, of := range s.DependsOn {
		add(true, on+":"+strings.TrimPrefix(of.Condition, "service_"))
	}
	for name := range s.Environment {
		setting, ours := strings.CutPrefix(name, "TRIPRIZE_")
		add(ours && value(s, name) != "", setting)
	}
	for _, part := range []string{"--appendonly yes", "--maxmemory-policy noeviction", "requirepass ", "triprize migrate up"} {
		add(strings.Contains(line(s), part), part)
	}
	add(len(s.Volumes) > 0 && s.Volumes[0].Type == types.VolumeTypeVolume && s.Volumes[0].Source != "", "in a volume")
	add(s.HealthCheck != nil && !s.HealthCheck.Disable && len(s.HealthCheck.Test) > 0, "checked")
	add(s.Restart == types.RestartPolicyNo, "once")
	add(s.ContainerName == "" && len(s.Ports) == 0 && s.GetScale() == 1, "scalable")
	add(s.NetworkMode == "host", "host network")
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// The schema comes before the fleet, Redis forgets nothing, and the api is not on the host's network, where it would
// listen on all addresses.
func TestEveryServiceIsThereWithWhatItNeeds(t *testing.T) {
	services := make(map[string]string)
	for name, service := range project(t).Services {
		services[name] = described(service)
	}
	const (
		afterAll = ", checked, migrate:completed_successfully, postgres:healthy, redis:healthy"
		own      = "PAYMENTS_ALLOW_TEST, PAYMENTS_STRIPE_KEY_FILE, PAYMENTS_STRIPE_WEBHOOK_SECRET_FILE, POSTGRES_URL_FILE, REDIS_URL_FILE"
		api      = "API_DRAIN_DELAY, API_LISTEN, API_METRICS_LISTEN, API_TRUSTED_PROXIES, DRAW_SECRET_KEY_FILE, " + own + afterAll
	)
	if want := map[string]string{
		"postgres":  "checked, in a volume, scalable",
		"redis":     "--appendonly yes, --maxmemory-policy noeviction, checked, in a volume, requirepass , scalable",
		"migrate":   "POSTGRES_URL_FILE, once, postgres:healthy, scalable, triprize migrate up",
		"scheduler": own + ", SCHEDULER_LISTEN" + afterAll + ", scalable",
		"worker":    "DRAW_SECRET_KEY_FILE, " + own + ", WORKER_LISTEN" + afterAll + ", scalable",
		"api":       api,
		"api2":      api,
	}; !maps.Equal(services, want) {
		t.Errorf("the services are %q, want %q", services, want)
	}
}

func TestEveryServiceIsBoundedAndShowsNoSecret(t *testing.T) {
	known := settings(t)
	exact := regexp.MustCompile(`:\d+\.\d+(\.\d+)?-bookworm(@sha256:[0-9a-f]{64})?$`) // a tag such as postgres:15 is another image next week
	services, published := project(t).Services, 0
	for name, service := range services {
		if service.MemLimit <= 0 || service.PidsLimit <= 0 { // one that takes all memory would have another one killed
			t.Errorf("%s: memory %d, processes %d", name, service.MemLimit, service.PidsLimit)
		}
		var files []string
		for variable, file := range service.Environment { // a process refuses to start on one that names no setting
			setting, isFile := strings.CutSuffix(variable, "_FILE")
			if strings.HasPrefix(variable, "TRIPRIZE_") && !slices.Contains(known, setting) {
				t.Errorf("%s: %s is no setting of configs/triprize.yaml", name, variable)
			}
			if !isFile && regexp.MustCompile("PASSWORD|KEY|SECRET|AUTH|_URL$").MatchString(variable) && value(service, variable) != "" {
				t.Errorf("%s: %s is in the environment, which inspect shows", name, variable)
			}
			if isFile {
				files = append(files, strings.TrimPrefix(*file, "/run/secrets/"))
			}
		}
		var given []string
		for _, secret := range service.Secrets {
			given = append(given, secret.Source)
		}
		slices.Sort(files)
		slices.Sort(given)
		if name != "redis" && !slices.Equal(files, given) {
			t.Errorf("%s: its variables name the secrets %q, and it gets %q", name, files, given)
		}
		for _, port := range service.Ports {
			published++
			if ip := net.ParseIP(port.HostIP); ip == nil || !ip.IsLoopback() || !strings.HasPrefix(name, "api") {
				t.Errorf("%s: port %s is published on %q; only an api is for others, on loopback", name, port.Published, port.HostIP)
			}
		}
		if service.Build == nil {
			if !exact.MatchString(service.Image) {
				t.Errorf("%s: %s", name, service.Image)
			}
			continue
		}
		if bytes, err := units.RAMInBytes(value(service, "GOMEMLIMIT")); err != nil || bytes >= int64(service.MemLimit) {
			t.Errorf("%s: GOMEMLIMIT %s, memory %d, %v", name, value(service, "GOMEMLIMIT"), service.MemLimit, err)
		}
		program, _, _ := strings.Cut(line(service), " ")
		if _, err := os.Stat(filepath.Join(root, "cmd", program, "main.go")); err != nil {
			t.Errorf("%s runs %s: %v", name, program, err)
		}
		// The owner of the database changes the schema, and the image's first user may do anything.
		if owns := slices.Contains(given, "postgres_owner_url"); owns != (name == "migrate") {
			t.Errorf("%s connects as the owner: %v", name, owns)
		}
	}
	if published != 2 {
		t.Errorf("%d ports are published, want one of each api", published)
	}
}

// A setting that the example offers, and that no process gets, would be left out without a word.
func TestTheFleetGetsWhatTheExampleOffersAndMayFinishWhatItBegan(t *testing.T) {
	const limit = (5 + 15) * time.Second // api.drain_delay and config.ShutdownTimeout
	env := map[string]string{"TRIPRIZE_VERSION": "v1.2.3"}
	offered := regexp.MustCompile(`(?m)^# (TRIPRIZE_[A-Z_]+)=`).FindAllSubmatch(read(t, "deploy", "example.env"), -1)
	if len(offered) == 0 {
		t.Fatal("the example offers nothing")
	}
	for _, name := range offered {
		env[string(name[1])] = "offered"
	}
	with, err := load(t, env)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range fleet {
		service := with.Services[name]
		for _, variable := range offered {
			if value(service, string(variable[1])) != "offered" {
				t.Errorf("%s does not get %s", name, variable[1])
			}
		}
		if version := service.Build.Args["VERSION"]; service.Image != "triprize:v1.2.3" || version == nil || *version != "v1.2.3" {
			t.Errorf("%s: image %s, %v", name, service.Image, version)
		}
		if grace := service.StopGracePeriod; grace == nil || time.Duration(*grace) <= limit {
			t.Errorf("%s is killed after %v, but may take %v to finish", name, grace, limit)
		}
		if service.Restart == "" || service.Restart == types.RestartPolicyNo {
			t.Errorf("%s is not started again when it ends", name)
		}
		check := service.HealthCheck
		if check == nil || len(check.Test) != 4 || check.Test[1] != "triprize" || check.Test[2] != "ready" || !strings.HasSuffix(check.Test[3], "/readyz") {
			t.Errorf("%s is not asked whether it is ready: %+v", name, check)
		}
	}
}

// settings returns the variables of all settings: postgres.url is TRIPRIZE_POSTGRES_URL.
func settings(t *testing.T) []string {
	t.Helper()
	var sections map[string]any
	if err := yaml.Unmarshal(read(t, "configs", "triprize.yaml"), &sections); err != nil {
		t.Fatal(err)
	}
	return append(variablesOf("triprize", sections), "TRIPRIZE_CONFIG") // names a settings file
}

// variablesOf returns the variables of a section and of the sections in it.
func variablesOf(prefix string, section map[string]any) (names []string) {
	for name, value := range section {
		name = prefix + "_" + name
		if inner, ok := value.(map[string]any); ok {
			names = append(names, variablesOf(name, inner)...)
		} else {
			names = append(names, strings.ToUpper(name))
		}
	}
	return names
}

// What the script does not make, the user would miss; a process of a container is not the user who made it.
func TestTheScriptMakesEverySecretOnce(t *testing.T) {
	folder := t.TempDir()
	script, err := filepath.Abs(filepath.Join(root, "deploy", "secrets.sh"))
	if err != nil {
		t.Fatal(err)
	}
	run := func() (modes []string, made map[string]string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", script)
		cmd.Dir = folder
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		made = make(map[string]string)
		if err := filepath.WalkDir(filepath.Join(folder, "secrets"), func(path string, entry fs.DirEntry, _ error) error {
			content, _ := os.ReadFile(path) // the folder has none
			made[entry.Name()] = strings.TrimSpace(string(content))
			info, err := entry.Info()
			modes = append(modes, fmt.Sprintf("%s %v", entry.Name(), info.Mode()))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return modes, made
	}
	modes, made := run()
	if _, again := run(); !maps.Equal(again, made) {
		t.Error("a second run replaced secrets")
	}
	wanted := []string{"secrets drwx------"}
	for name, secret := range project(t).Secrets {
		wanted = append(wanted, name+" -rw-r--r--")
		if !strings.HasSuffix(secret.File, filepath.Join("secrets", name)) {
			t.Errorf("%s is in %s", name, secret.File)
		}
	}
	if slices.Sort(wanted); !slices.Equal(slices.Sorted(slices.Values(modes)), wanted) {
		t.Errorf("the script makes %q, the compose file needs %q", modes, wanted)
	}
	for password, url := range map[string]string{"postgres_password": "postgres_owner_url", "postgres_app_password": "postgres_url", "redis_password": "redis_url"} {
		if len(made[password]) != 48 || !strings.Contains(made[url], ":"+made[password]+"@") {
			t.Errorf("%s is not in %s", password, url)
		}
	}
	if len(made["draw_secret_key"]) != 64 || made["stripe_key"]+made["stripe_webhook_secret"] != "" || made["postgres_password"] == made["postgres_app_password"] {
		t.Error("the key of the draws is not 64 hex digits, cards are enabled, or passwords are equal")
	}
}

// The official images refuse to build what asks for a newer Go.
func TestTheImageIsBuiltWithTheGoOfGoMod(t *testing.T) {
	in := func(pattern, file string) string {
		found := regexp.MustCompile(`(?m)` + pattern).FindSubmatch(read(t, file))
		if found == nil {
			t.Fatalf("%s has no line %s", file, pattern)
		}
		return string(found[1])
	}
	if image, module := in(`^ARG GO_VERSION=(\S+)$`, "Dockerfile"), in(`^go (\S+)$`, "go.mod"); image != module {
		t.Errorf("the Dockerfile builds with Go %s, go.mod asks for %s", image, module)
	}
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}
