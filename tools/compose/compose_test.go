// Package compose checks docker-compose.yml and its surroundings without
// Docker: Compose's own loader reads the file, and the tests hold it against
// what the programs need.
package compose

import (
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/docker/go-units"
	"go.yaml.in/yaml/v3"
)

const root = "../.."

// environment has a value for every variable that the example names.
func environment(t *testing.T) map[string]string {
	t.Helper()
	example, err := dotenv.Read(filepath.Join(root, "deploy", "example.env"))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range example {
		if value != "" {
			t.Errorf("the example comes with a value for %s, which somebody would keep", name)
		}
		example[name] = strings.Repeat("5a", 32)
	}
	return example
}

func load(t *testing.T, env map[string]string) (*types.Project, error) {
	t.Helper()
	details := types.ConfigDetails{WorkingDir: root, ConfigFiles: types.ToConfigFiles([]string{filepath.Join(root, "docker-compose.yml")}), Environment: env}
	return loader.LoadWithContext(t.Context(), details)
}

func project(t *testing.T) *types.Project {
	t.Helper()
	p, err := load(t, environment(t))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var fleet = []string{"api", "worker", "scheduler"}

func TestEveryServiceIsThere(t *testing.T) {
	want := append([]string{"postgres", "redis", "migrate"}, fleet...)
	for _, name := range want {
		if _, ok := project(t).Services[name]; !ok {
			t.Errorf("there is no service %s", name)
		}
	}
}

func TestWorkersCanBeScaled(t *testing.T) {
	worker := project(t).Services["worker"]
	if worker.ContainerName != "" {
		t.Errorf("the container is named %s: there can be one of a name only", worker.ContainerName)
	}
	if len(worker.Ports) > 0 {
		t.Errorf("ports are published: %v; there can be one listener on a port only", worker.Ports)
	}
	if n := worker.GetScale(); n != 1 {
		t.Errorf("the scale is fixed at %d", n)
	}
}

func TestRedisForgetsNothing(t *testing.T) {
	redis := project(t).Services["redis"]
	command := strings.Join(redis.Command, " ")
	for _, want := range []string{"--appendonly yes", "--maxmemory-policy noeviction", "requirepass "} {
		if !strings.Contains(command, want) {
			t.Errorf("the command %q lacks %q", command, want)
		}
	}
	for _, server := range []string{"redis", "postgres"} {
		if volumes := project(t).Services[server].Volumes; len(volumes) == 0 || volumes[0].Type != types.VolumeTypeVolume || volumes[0].Source == "" {
			t.Errorf("%s keeps its data in %v, not in a named volume", server, volumes)
		}
	}
}

// A service that takes all memory would have another one killed.
func TestEveryServiceIsBounded(t *testing.T) {
	for name, service := range project(t).Services {
		if service.MemLimit <= 0 || service.PidsLimit <= 0 {
			t.Errorf("%s: memory %d, processes %d", name, service.MemLimit, service.PidsLimit)
		}
		if service.Build == nil {
			continue
		}
		limit := service.Environment["GOMEMLIMIT"]
		if limit == nil {
			t.Errorf("%s has no GOMEMLIMIT", name)
		} else if bytes, err := units.RAMInBytes(*limit); err != nil || bytes >= int64(service.MemLimit) {
			t.Errorf("%s: GOMEMLIMIT %s, memory %d, %v", name, *limit, service.MemLimit, err)
		}
	}
}

// Anybody on the host reads command lines.
func TestNoSecretIsOnACommandLine(t *testing.T) {
	env := environment(t)
	for name, service := range project(t).Services {
		line := strings.Join(slices.Concat(service.Entrypoint, service.Command), " ")
		for variable, secret := range env {
			if strings.Contains(line, secret) {
				t.Errorf("%s: %s is in %q", name, variable, line)
			}
		}
	}
}

// A tag such as postgres:15 is another image next week.
func TestImagesOfOthersHaveExactTags(t *testing.T) {
	exact := regexp.MustCompile(`:\d+\.\d+(\.\d+)?-bookworm(@sha256:[0-9a-f]{64})?$`)
	for name, service := range project(t).Services {
		if service.Build == nil && !exact.MatchString(service.Image) {
			t.Errorf("%s: %s", name, service.Image)
		}
	}
}

func TestTheSchemaComesBeforeTheFleet(t *testing.T) {
	services := project(t).Services
	migrate := services["migrate"]
	if got := strings.Join(slices.Concat(migrate.Entrypoint, migrate.Command), " "); got != "triprize migrate up" {
		t.Errorf("migrate runs %q", got)
	}
	if migrate.Restart != types.RestartPolicyNo {
		t.Errorf("migrate has the restart policy %q and would never be completed", migrate.Restart)
	}
	waits(t, "migrate", migrate, "postgres", types.ServiceConditionHealthy)
	for _, name := range fleet {
		waits(t, name, services[name], "migrate", types.ServiceConditionCompletedSuccessfully)
		waits(t, name, services[name], "postgres", types.ServiceConditionHealthy)
		waits(t, name, services[name], "redis", types.ServiceConditionHealthy)
	}
	for _, server := range []string{"postgres", "redis"} {
		if check := services[server].HealthCheck; check == nil || check.Disable || len(check.Test) == 0 {
			t.Errorf("%s has no health check, so nobody can wait for it", server)
		}
	}
}

func waits(t *testing.T, name string, service types.ServiceConfig, on, condition string) {
	t.Helper()
	if got := service.DependsOn[on].Condition; got != condition {
		t.Errorf("%s waits for %s to be %q, not %q", name, on, got, condition)
	}
}

// A process refuses to start on a TRIPRIZE_ variable that names no setting.
func TestEveryVariableIsASetting(t *testing.T) {
	known := settings(t)
	for name, service := range project(t).Services {
		for variable := range service.Environment {
			if strings.HasPrefix(variable, "TRIPRIZE_") && !slices.Contains(known, variable) {
				t.Errorf("%s: %s is no setting of configs/triprize.yaml", name, variable)
			}
		}
	}
}

func TestEveryProcessHasItsRequiredSettings(t *testing.T) {
	required := map[string][]string{
		"migrate":   {"TRIPRIZE_POSTGRES_URL", "TRIPRIZE_REDIS_URL"},
		"scheduler": {"TRIPRIZE_POSTGRES_URL", "TRIPRIZE_REDIS_URL"},
		"worker":    {"TRIPRIZE_POSTGRES_URL", "TRIPRIZE_REDIS_URL", "TRIPRIZE_DRAW_SECRET_KEY"},
		"api":       {"TRIPRIZE_POSTGRES_URL", "TRIPRIZE_REDIS_URL", "TRIPRIZE_DRAW_SECRET_KEY", "TRIPRIZE_API_LISTEN"},
	}
	for name, variables := range required {
		for _, variable := range variables {
			if value := project(t).Services[name].Environment[variable]; value == nil || *value == "" {
				t.Errorf("%s: %s is not set", name, variable)
			}
		}
	}
}

// A setting that the example offers, and that no process gets, would be left out without a word.
func TestWhatTheExampleOffersReachesTheFleet(t *testing.T) {
	env := environment(t)
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
	for _, name := range offered {
		for _, service := range fleet {
			if value := with.Services[service].Environment[string(name[1])]; value == nil || *value != "offered" {
				t.Errorf("%s does not get %s", service, name[1])
			}
		}
	}
}

// The owner of the database changes the schema, and the image's first user may do anything.
func TestOnlyTheMigrationIsTheOwnerOfTheDatabase(t *testing.T) {
	services := project(t).Services
	owner := *services["postgres"].Environment["POSTGRES_USER"]
	for _, name := range append([]string{"migrate"}, fleet...) {
		url := *services[name].Environment["TRIPRIZE_POSTGRES_URL"]
		if owns := strings.HasPrefix(url, "postgres://"+owner+":"); owns != (name == "migrate") {
			t.Errorf("%s connects as the owner: %v", name, owns)
		}
	}
}

func TestTheImageIsNamedAndBuiltByItsVersion(t *testing.T) {
	env := environment(t)
	env["TRIPRIZE_VERSION"] = "v1.2.3"
	with, err := load(t, env)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range fleet {
		service := with.Services[name]
		if version := service.Build.Args["VERSION"]; service.Image != "triprize:v1.2.3" || version == nil || *version != "v1.2.3" {
			t.Errorf("%s: image %s, %v", name, service.Image, version)
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

func TestPortsArePublishedOnLoopbackOnly(t *testing.T) {
	published := 0
	for name, service := range project(t).Services {
		for _, port := range service.Ports {
			published++
			if ip := net.ParseIP(port.HostIP); ip == nil || !ip.IsLoopback() {
				t.Errorf("%s: port %s is published on %q", name, port.Published, port.HostIP)
			}
			if name != "api" {
				t.Errorf("%s: port %s is published, but only the api is for others", name, port.Published)
			}
		}
	}
	if published == 0 {
		t.Error("nobody can reach the api")
	}
	if service := project(t).Services["api"]; service.NetworkMode == "host" {
		t.Error("the api is on the host's network, where it would listen on all addresses")
	}
}

func TestAProcessMayFinishWhatItBegan(t *testing.T) {
	const limit = 15 * time.Second // config.ShutdownTimeout
	for _, name := range fleet {
		service := project(t).Services[name]
		if grace := service.StopGracePeriod; grace == nil || time.Duration(*grace) <= limit {
			t.Errorf("%s is killed after %v, but may take %v to finish", name, grace, limit)
		}
		if service.Restart == "" || service.Restart == types.RestartPolicyNo {
			t.Errorf("%s is not started again when it ends", name)
		}
	}
}

// Every variable of the example is needed, and nothing else is.
func TestMissingSecretsAreNamed(t *testing.T) {
	env := environment(t)
	for _, name := range slices.Sorted(maps.Keys(env)) {
		for _, value := range []string{"unset", "empty"} {
			rest := maps.Clone(env)
			delete(rest, name)
			if value == "empty" {
				rest[name] = ""
			}
			if _, err := load(t, rest); err == nil {
				t.Errorf("loaded with %s %s", name, value)
			} else if !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "deploy/example.env") {
				t.Errorf("with %s %s the error does not help: %v", name, value, err)
			}
		}
	}
	if _, ok := env["TRIPRIZE_DRAW_SECRET_KEY"]; !ok {
		t.Error("the example lacks TRIPRIZE_DRAW_SECRET_KEY")
	}
}

func TestCommandsAreProgramsOfTheImage(t *testing.T) {
	for name, service := range project(t).Services {
		if service.Build == nil {
			continue
		}
		program := slices.Concat(service.Entrypoint, service.Command)[0]
		if _, err := os.Stat(filepath.Join(root, "cmd", program, "main.go")); err != nil {
			t.Errorf("%s runs %s: %v", name, program, err)
		}
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

func TestTheFleetIsAskedWhetherItIsReady(t *testing.T) {
	for _, name := range fleet {
		check := project(t).Services[name].HealthCheck
		if check == nil || len(check.Test) != 4 || check.Test[1] != "triprize" || check.Test[2] != "ready" || !strings.HasSuffix(check.Test[3], "/readyz") {
			t.Errorf("%s: %+v", name, check)
		}
	}
}
