// Package compose checks docker-compose.yml and its surroundings without
// Docker: Compose's own loader reads the file, and the tests hold it against
// what the programs need.
package compose

import (
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

const (
	root   = "../../"
	finish = (5 + 15) * time.Second // api.drain_delay and config.ShutdownTimeout
)

func project(t *testing.T, env map[string]string) *types.Project {
	t.Helper()
	files := types.ToConfigFiles([]string{root + "docker-compose.yml"})
	p, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{WorkingDir: root, ConfigFiles: files, Environment: env})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// exact is an image that is the same next week; that of a tag such as postgres:15 is not.
var exact = regexp.MustCompile(`:\d+\.\d+(\.\d+)?-bookworm(@sha256:[0-9a-f]{64})?$`)

// described says what a service waits for, which variables have a value, which secrets it gets and as which variables,
// where it is published, and what is special.
func described(s types.ServiceConfig, settings []string) (words []string) {
	add := func(is bool, word string) {
		if is {
			words = append(words, word)
		}
	}
	const secrets = "/run/secrets/"
	env := s.Environment.ToMapping()
	for on, of := range s.DependsOn {
		add(true, on+":"+strings.TrimPrefix(of.Condition, "service_"))
	}
	for name := range s.Environment {
		ours := strings.HasPrefix(name, "TRIPRIZE_")
		add(ours && !slices.Contains(settings, strings.TrimSuffix(name, "_FILE")), name+" is no setting") // a process refuses to start
		add(env[name] != "" && !strings.HasPrefix(env[name], secrets), name)
	}
	for _, secret := range s.Secrets {
		as := "secret " + secret.Source
		for name, value := range env {
			if value == secrets+secret.Source {
				as += " " + name
			}
		}
		add(true, as)
	}
	for _, port := range s.Ports {
		add(true, port.HostIP+":"+port.Published)
	}
	line := strings.Join(slices.Concat(s.Entrypoint, s.Command), " ")
	for _, part := range []string{"--appendonly yes", "--maxmemory-policy noeviction", "requirepass "} {
		add(strings.Contains(line, part), part)
	}
	if s.Build != nil {
		add(true, "runs "+line+" of "+s.Image+", "+s.Build.Args.ToMapping()["VERSION"])
	}
	add(s.Build == nil && exact.MatchString(s.Image), "exact image")
	add(len(s.Volumes) > 0 && s.Volumes[0].Type == types.VolumeTypeVolume && s.Volumes[0].Source != "", "in a volume")
	add(s.MemLimit > 0 && s.PidsLimit > 0, "bounded") // one that takes all memory would have another one killed
	goes, err := units.RAMInBytes(env["GOMEMLIMIT"])
	add(err == nil && goes < int64(s.MemLimit), "memory above GOMEMLIMIT")
	add(s.StopGracePeriod != nil && time.Duration(*s.StopGracePeriod) > finish, "may finish")
	if check := s.HealthCheck; check != nil && !check.Disable {
		test := strings.Join(check.Test, " ")
		ready := strings.HasPrefix(test, "CMD triprize ready http://") && strings.HasSuffix(test, "/readyz")
		add(ready, "asked whether it is ready")
		add(!ready && test != "", "checked")
	}
	add(s.Restart == types.RestartPolicyNo, "once")
	add(s.Restart == types.RestartPolicyUnlessStopped, "restarted")
	add(s.ContainerName == "" && len(s.Ports) == 0 && s.GetScale() == 1, "scalable")
	add(s.NetworkMode == "host", "host network")
	return words
}

// variables returns the variable of each setting: that of postgres.url is TRIPRIZE_POSTGRES_URL.
func variables(name string, value any) (names []string) {
	section, ok := value.(map[string]any)
	if !ok {
		return []string{strings.ToUpper(name)}
	}
	for inner, value := range section {
		names = append(names, variables(name+"_"+inner, value)...)
	}
	return names
}

// The schema comes before the fleet, and only its migration connects as the owner. Redis forgets nothing. No secret is in
// the environment, which inspect shows. Only the apis are for others, on loopback. Every process of the fleet gets what the
// example offers: otherwise a setting would be left out without a word.
func TestEveryServiceIsThereWithWhatItNeeds(t *testing.T) {
	var sections map[string]any
	if err := yaml.Unmarshal([]byte(read(t, root+"configs/triprize.yaml")), &sections); err != nil {
		t.Fatal(err)
	}
	server := []string{"bounded", "checked", "exact image", "in a volume", "may finish", "restarted", "scalable"}
	program := []string{"bounded", "GOMEMLIMIT", "may finish", "memory above GOMEMLIMIT", "postgres:healthy"}
	process := slices.Concat(program, []string{
		"asked whether it is ready", "migrate:completed_successfully", "redis:healthy", "restarted",
		"secret postgres_url TRIPRIZE_POSTGRES_URL_FILE", "secret redis_url TRIPRIZE_REDIS_URL_FILE",
		"secret stripe_key TRIPRIZE_PAYMENTS_STRIPE_KEY_FILE",
		"secret stripe_webhook_secret TRIPRIZE_PAYMENTS_STRIPE_WEBHOOK_SECRET_FILE",
	})
	env := map[string]string{"TRIPRIZE_VERSION": "v1"}
	for _, offered := range regexp.MustCompile(`(?m)^# (TRIPRIZE_[A-Z_]+)=`).FindAllStringSubmatch(read(t, root+"deploy/example.env"), -1) {
		env[offered[1]], process = "offered", append(process, offered[1])
	}
	if len(env) == 1 {
		t.Error("the example offers nothing")
	}
	const ofImage, drawKey = " of triprize:v1, v1", "secret draw_secret_key TRIPRIZE_DRAW_SECRET_KEY_FILE"
	api := slices.Concat(process, []string{"runs api" + ofImage, drawKey, "TRIPRIZE_API_DRAIN_DELAY", "TRIPRIZE_API_LISTEN",
		"TRIPRIZE_API_METRICS_LISTEN", "TRIPRIZE_API_TRUSTED_PROXIES"})
	want := map[string][]string{
		"postgres": slices.Concat(server, []string{"POSTGRES_DB", "POSTGRES_USER",
			"secret postgres_password POSTGRES_PASSWORD_FILE", "secret postgres_app_password POSTGRES_APP_PASSWORD_FILE"}),
		"redis": slices.Concat(server, []string{"--appendonly yes", "--maxmemory-policy noeviction", "requirepass ", "secret redis_password"}),
		"migrate": slices.Concat(program, []string{"runs triprize migrate up" + ofImage, "once", "scalable",
			"secret postgres_owner_url TRIPRIZE_POSTGRES_URL_FILE"}),
		"scheduler": slices.Concat(process, []string{"runs scheduler" + ofImage, "scalable", "TRIPRIZE_SCHEDULER_LISTEN"}),
		"worker":    slices.Concat(process, []string{"runs worker" + ofImage, "scalable", "TRIPRIZE_WORKER_LISTEN", drawKey}),
		"api":       slices.Concat(api, []string{"127.0.0.1:8080"}),
		"api2":      slices.Concat(api, []string{"127.0.0.1:8081"}),
	}
	services := project(t, env).Services
	for name, service := range services {
		is := described(service, variables("triprize", sections))
		slices.Sort(is)
		slices.Sort(want[name])
		if !slices.Equal(is, want[name]) {
			t.Errorf("%s is\n%q, want\n%q", name, is, want[name])
		}
	}
	if len(services) != len(want) {
		t.Errorf("there are %d services, want %d", len(services), len(want))
	}
}

// What the script does not make, the user would miss; a process of a container is not the user who made it.
func TestTheScriptMakesEverySecretOnce(t *testing.T) {
	script, err := filepath.Abs(root + "deploy/secrets.sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-euc", `sh "$0"; cp -R secrets first; sh "$0"; diff -r first secrets
		mkdir unsafe; cd unsafe; cp -R ../secrets .; rm secrets/*url; echo hunter2@b >secrets/redis_password; ! sh "$0" 2>error && ! grep hunter2 error secrets/*url`, script)
	cmd.Dir = t.TempDir()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	folder, needed, made := filepath.Join(cmd.Dir, "secrets"), project(t, nil).Secrets, make(map[string]string)
	if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("others may look into the folder: %v", err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != len(needed) {
		t.Errorf("the script makes %v, the compose file needs %v: %v", entries, needed, err)
	}
	for _, entry := range entries {
		name := entry.Name()
		info, err := entry.Info()
		if err != nil || info.Mode() != 0o644 || !strings.HasSuffix(needed[name].File, filepath.Join("secrets", name)) {
			t.Errorf("%s cannot be read by all, or the compose file takes %q: %v", name, needed[name].File, err)
		}
		made[name] = strings.TrimSpace(read(t, filepath.Join(folder, name)))
	}
	for password, url := range map[string]string{
		"postgres_password": "postgres_owner_url", "postgres_app_password": "postgres_url", "redis_password": "redis_url",
	} {
		if len(made[password]) != 48 || !strings.Contains(made[url], ":"+made[password]+"@") {
			t.Errorf("%s is not in %s", password, url)
		}
	}
	if len(made["draw_secret_key"]) != 64 || made["stripe_key"]+made["stripe_webhook_secret"] != "" ||
		made["postgres_password"] == made["postgres_app_password"] {
		t.Error("the key of the draws is not 64 hex digits, cards are enabled, or passwords are equal")
	}
}

// The official images refuse to build what asks for a newer Go.
func TestTheImageIsBuiltWithTheGoOfGoMod(t *testing.T) {
	version := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(read(t, root+"go.mod"))
	if version == nil || !strings.Contains(read(t, root+"Dockerfile"), "ARG GO_VERSION="+version[1]+"\n") {
		t.Errorf("the Dockerfile does not build with the Go that go.mod asks for, %q", version)
	}
}
