// Package chart renders the Helm chart with Helm's own library and decodes the result strictly into the types of
// Kubernetes, without a cluster. It is a module of its own because Helm compiles for a minute.
package chart

import (
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

const (
	root     = "../../"
	folder   = root + "deploy/helm/triprize/"
	shutdown = 15 * time.Second // config.ShutdownTimeout
)

type texts = map[string]string

func parse[T any](t *testing.T, text string) (value T) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &value); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return value
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func render(t *testing.T, values string) (texts, error) {
	t.Helper()
	log.SetOutput(io.Discard) // the loader reports the link to the rules
	c, err := loader.LoadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	with, err := chartutil.ToRenderValues(c, parse[map[string]any](t, values), chartutil.ReleaseOptions{Name: "shop", Namespace: "sale"}, nil)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: true}.Render(c, with)
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

// described names the settings of a pod that come from Secrets, and what its program cannot work with.
func described(t *testing.T, pod core.PodSpec) string {
	t.Helper()
	var words []string
	add := func(is bool, word string) {
		if is {
			words = append(words, word)
		}
	}
	c, values := pod.Containers[0], make(texts)
	settings := variables("triprize", parse[map[string]any](t, read(t, root+"configs/triprize.yaml")))
	mounted := len(c.VolumeMounts) > 0 && c.VolumeMounts[0].MountPath == "/etc/triprize/ca" && pod.Volumes[0].ConfigMap != nil
	for _, v := range c.Env {
		setting, ours := strings.CutPrefix(v.Name, "TRIPRIZE_")
		_, twice := values[v.Name]
		values[v.Name] = v.Value
		add(ours && v.ValueFrom != nil, setting)
		add(ours && !slices.Contains(settings, v.Name), v.Name+" is no setting")
		add(twice, v.Name+" is there twice")
		add(strings.HasPrefix(v.Value, "/etc/triprize/ca/") && !mounted, v.Name+" is in no volume")
	}
	goes, err := resource.ParseQuantity(strings.TrimSuffix(values["GOMEMLIMIT"], "B"))
	add(err != nil || goes.Cmp(*c.Resources.Limits.Memory()) >= 0, "GOMEMLIMIT is above the memory")
	_, err = os.Stat(root + "cmd/" + c.Args[0])
	add(err != nil, c.Args[0]+" is no program")
	if c.Name == "migration" { // it listens on nothing
		return strings.Join(words, " ")
	}
	ports := ""
	for _, port := range c.Ports {
		ports += fmt.Sprintf(":%d", port.ContainerPort)
	}
	listens := values["TRIPRIZE_API_LISTEN"] + values["TRIPRIZE_API_METRICS_LISTEN"] + values["TRIPRIZE_WORKER_LISTEN"] + values["TRIPRIZE_SCHEDULER_LISTEN"]
	add(ports != listens, "has the ports "+ports+" and listens on "+listens)
	for probe, path := range map[*core.Probe]string{c.StartupProbe: "/healthz", c.LivenessProbe: "/healthz", c.ReadinessProbe: "/readyz"} {
		add(probe.HTTPGet.Path != path || probe.HTTPGet.Port.StrVal != c.Ports[len(c.Ports)-1].Name, path+" is not asked")
	}
	drain, _ := time.ParseDuration(values["TRIPRIZE_API_DRAIN_DELAY"])
	grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
	add(grace <= drain+shutdown, "is killed before its shutdown ends")
	return strings.Join(words, " ")
}

func TestEveryExampleRendersWhatKubernetesAndTheProgramsTake(t *testing.T) {
	const servers, cards, drawKey = "POSTGRES_URL REDIS_URL", "PAYMENTS_STRIPE_KEY PAYMENTS_STRIPE_WEBHOOK_SECRET ", "DRAW_SECRET_KEY "
	for example, want := range map[string]texts{ // what objects name, besides those of every example
		"smallest":   {},
		"production": {"HorizontalPodAutoscaler worker": "shop-triprize-worker", "HorizontalPodAutoscaler api": "shop-triprize-api", "Ingress api": "shop-triprize-api", "NetworkPolicy ": ""},
		"cloud": {
			"ScaledObject worker": "map[name:shop-triprize-worker]", "Ingress api": "shop-triprize-api", "NetworkPolicy ": "", "PrometheusRule ": "true",
			"PodMonitor ": "map[matchLabels:map[app.kubernetes.io/instance:shop app.kubernetes.io/name:triprize]]",
		},
	} {
		rendered, err := render(t, read(t, folder+"examples/"+example+".yaml"))
		if err != nil {
			t.Fatal(example, err)
		}
		secrets, account := map[bool]string{true: cards}[example == "production"]+servers, map[bool]string{true: "CONSOLE_OIDC_CLIENT_SECRET "}[example == "production"]
		maps.Copy(want, texts{
			"Deployment api": account + drawKey + secrets, "Deployment worker": drawKey + secrets, "Deployment scheduler": secrets, "Job migration": "POSTGRES_URL",
			"Service api": "http", "PodDisruptionBudget api": "", "PodDisruptionBudget worker": "", "PodDisruptionBudget scheduler": "",
		})
		found, pods, selectors := make(texts), make(map[string]labels.Set), make(map[string]labels.Set)
		for _, text := range strings.Split(strings.Join(slices.Collect(maps.Values(rendered)), "\n---\n"), "\n---\n") {
			head := regexp.MustCompile(`(?m)^kind: (\w+)\nmetadata:\n  name: shop-triprize-?(\w*)$`).FindStringSubmatch(text)
			if head == nil {
				continue
			}
			name, process, spec := head[1]+" "+head[2], head[2], parse[map[string]any](t, text)["spec"].(map[string]any)
			found[name] = ""
			switch head[1] {
			case "Deployment":
				d := parse[apps.Deployment](t, text).Spec
				pods[process], selectors[name], found[name] = d.Template.Labels, d.Selector.MatchLabels, described(t, d.Template.Spec)
				if spec := d.Template.Spec; example == "production" && (spec.TopologySpreadConstraints[1].WhenUnsatisfiable != core.DoNotSchedule || spec.ServiceAccountName != "triprize" ||
					d.Template.Annotations["example/owner"] != "sale" || len(spec.Volumes) != 2 || len(spec.Containers[0].VolumeMounts) != 2) {
					t.Errorf("%s does not have what the values say: %+v", name, spec)
				}
				selectors["spread "+process] = d.Template.Spec.TopologySpreadConstraints[1].LabelSelector.MatchLabels
			case "Job":
				found[name] = described(t, parse[batch.Job](t, text).Spec.Template.Spec)
			case "Service":
				s := parse[core.Service](t, text).Spec
				selectors[name], found[name] = s.Selector, s.Ports[0].TargetPort.StrVal
			case "PodDisruptionBudget":
				budget := parse[policy.PodDisruptionBudget](t, text).Spec
				if selectors[name] = budget.Selector.MatchLabels; budget.UnhealthyPodEvictionPolicy == nil || *budget.UnhealthyPodEvictionPolicy != policy.AlwaysAllow {
					t.Errorf("%s: nodes cannot be drained while the pods of %s are not ready", example, name)
				}
			case "NetworkPolicy":
				selectors[name] = parse[networking.NetworkPolicy](t, text).Spec.PodSelector.MatchLabels
			case "Ingress":
				found[name] = parse[networking.Ingress](t, text).Spec.Rules[0].HTTP.Paths[0].Backend.Service.Name
			case "HorizontalPodAutoscaler":
				found[name] = parse[autoscaling.HorizontalPodAutoscaler](t, text).Spec.ScaleTargetRef.Name
			case "ScaledObject": // this and the next are kinds of operators
				found[name] = fmt.Sprint(spec["scaleTargetRef"])
			case "PodMonitor":
				found[name] = fmt.Sprint(spec["selector"])
			case "PrometheusRule":
				rules := strings.ReplaceAll(read(t, root+"deploy/prometheus/rules.yml"), " docs/runbooks/", " https://git.example/triprize/docs/runbooks/")
				found[name] = fmt.Sprint(reflect.DeepEqual(spec, parse[map[string]any](t, rules)))
			}
		}
		if !maps.Equal(found, want) {
			t.Errorf("%s has\n%q, want\n%q", example, found, want)
		}
		for name, selector := range selectors { // an object selects the pods that it is named for; one without a name, all
			for process, of := range pods {
				selected := selector.AsSelector().Matches(of)
				if wanted := strings.HasSuffix(name, " ") || strings.HasSuffix(name, " "+process); selected != wanted {
					t.Errorf("%s: %s selects pods of the %s: %v", example, name, process, selected)
				}
			}
		}
	}
}

func TestValuesThatMakeNoSenseAreRejected(t *testing.T) {
	for _, c := range [][2]string{
		{"replicas: 2", "replicas"}, {"api: {replicas: 0}", "replicas"}, {"api: {autoscaling: {max: 1}}", "above max"}, {"spread: Never", "spread"}, {"worker: {memory: 1Gi}", "memory"}, {"pod: {hostNetwork: true}", "hostNetwork"},
		{"worker: {autoscaling: {by: cpu, min: 7}}", "above max"}, {"worker: {autoscaling: {by: queue}}", "address of Prometheus"},
		{"settings: {postgres.url: x}", "postgres.url"}, {"settings: {locks.redis_urls: x}", "locks.redis_urls"}, {"settings: {console.oidc.client_secret: x}", "client_secret"},
		{"settings: {api.listen: x}", "api.listen"}, {"settings: {TRIPRIZE_API: x}", "TRIPRIZE_API"},
		{"secrets: {redis.url: null}", "redis.url"}, {"secrets: {redis.url: {name: x, key: ''}}", "redis.url"}, {"networkPolicy: {egressPorts: []}", "egressPorts"},
		{"ingress: {enabled: true, host: shop.example}", "tlsSecret"}, {"monitoring: {enabled: true, runbooks: docs}", "runbooks"},
	} {
		if _, err := render(t, c[0]); err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%s: %v", c[0], err)
		}
	}
}
