// Package config loads the settings: defaults from configs/triprize.yaml, a file, the
// environment.
//
// [Load] returns [Settings]. All defaults are in the embedded YAML file. A setting that is unknown, of the
// wrong type or out of range is rejected with its name and the reason, and the process does not start.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/go-playground/validator/v10"
	"github.com/spf13/viper"

	"triprize/configs"
)

const (
	envPrefix = "TRIPRIZE"
	// FileVariable names the settings file if there is no --config flag.
	FileVariable = "TRIPRIZE_CONFIG"
	// APIVariable is the address of the api, for the operators' tool.
	APIVariable = "TRIPRIZE_API"
	// KeyVariable is an operator's key, for the operators' tool.
	KeyVariable = "TRIPRIZE_KEY"
	// testPrefix is the prefix of the variables of test suites.
	testPrefix = "TRIPRIZE_TEST_"
)

// Load reads the defaults, then file (empty: the one in TRIPRIZE_CONFIG, if set), then the environment, and checks
// the result. The error lists all invalid settings with their names and reasons.
func Load(file string) (Settings, error) { return LoadFrom(file, os.Environ()) }

// LoadFrom is Load with a given environment: pairs of name=value.
func LoadFrom(file string, environ []string) (Settings, error) {
	environment := variables(environ)
	if file == "" {
		file = environment[FileVariable]
	}
	v := viper.New()
	v.SetConfigType("yaml")
	if err := v.ReadConfig(bytes.NewReader(configs.Defaults)); err != nil {
		return Settings{}, fmt.Errorf("config.Load: the built-in defaults: %w", err)
	}
	fields := fieldsOf(reflect.TypeFor[Settings](), "")
	known := slices.Collect(maps.Keys(fields))
	if file != "" {
		if err := mergeFile(v, file, known); err != nil {
			return Settings{}, err
		}
	}
	var settings Settings
	if err := override(reflect.ValueOf(&settings).Elem(), envPrefix, environment); err != nil {
		return Settings{}, err
	}
	bound, err := setFromEnvironment(v, known, environment)
	if err != nil {
		return Settings{}, err
	}
	err = convertAll(v, fields, func(key string) string {
		if bound[key] {
			return variable(key)
		}
		return "settings file " + file
	})
	if err != nil {
		return Settings{}, err
	}
	if err := v.UnmarshalExact(&settings); err != nil {
		return Settings{}, fmt.Errorf("settings: %w", err)
	}
	if err := check(settings); err != nil {
		return Settings{}, err
	}
	return settings, nil
}

// fieldsOf returns every setting by key. Sections may be nested.
func fieldsOf(settings reflect.Type, prefix string) map[string]reflect.StructField {
	all := make(map[string]reflect.StructField)
	for field := range settings.Fields() {
		key := prefix + field.Tag.Get("mapstructure")
		if field.Tag.Get("mapstructure") == "-" {
			continue
		}
		if field.Type.Kind() == reflect.Struct {
			maps.Copy(all, fieldsOf(field.Type, key+"."))
		} else {
			all[key] = field
		}
	}
	return all
}

// variables returns the environment as a map; the last of equal names wins. An
// empty value is a value: to get the default, unset the variable.
func variables(environ []string) map[string]string {
	environment := make(map[string]string, len(environ))
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		environment[name] = value
	}
	return environment
}

// setFromEnvironment overrides setting a.b with TRIPRIZE_A_B and returns the settings that have such a variable. It
// rejects variables with our prefix that name no setting.
func setFromEnvironment(v *viper.Viper, known []string, environment map[string]string) (bound map[string]bool, err error) {
	names := make(map[string]string, len(known))
	for _, key := range known {
		names[variable(key)] = key
	}
	bound = make(map[string]bool)
	var unknown []error
	for name, value := range environment {
		if !strings.HasPrefix(name, envPrefix+"_") || name == FileVariable || name == APIVariable || name == KeyVariable || strings.HasPrefix(name, testPrefix) {
			continue
		}
		key, ok := names[name]
		if !ok {
			unknown = append(unknown, fmt.Errorf("environment: unknown setting %s", name))
			continue
		}
		v.Set(key, value)
		bound[key] = true
	}
	sort.Slice(unknown, func(i, j int) bool { return unknown[i].Error() < unknown[j].Error() })
	return bound, errors.Join(unknown...)
}

// variable returns the environment variable of a setting: postgres.url is TRIPRIZE_POSTGRES_URL.
func variable(key string) string {
	return envPrefix + "_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

func check(settings Settings) error {
	v := validator.New(validator.WithRequiredStructEnabled())
	for name, rule := range map[string]validator.Func{"url_of": isURLOf, "quorum_of": isQuorumOf, "draw_keys": areDrawKeys, "networks": areNetworks, "secret": longEnough, "client": isClient} {
		if err := v.RegisterValidation(name, rule); err != nil {
			return fmt.Errorf("settings: %w", err)
		}
	}
	v.RegisterTagNameFunc(func(f reflect.StructField) string { return f.Tag.Get("mapstructure") })
	err := v.Struct(settings)
	if err == nil {
		return errors.Join(checkTracing(settings.Tracing), checkCORS(settings.API), checkTokens(settings.Tokens), checkRetention(settings.Retention), checkPayments(settings.Payments), checkBeacon(settings.Beacon))
	}
	var failed validator.ValidationErrors
	if !errors.As(err, &failed) {
		return fmt.Errorf("settings: %w", err)
	}
	var all []error
	for _, f := range failed {
		_, key, _ := strings.Cut(f.Namespace(), ".")
		all = append(all, fmt.Errorf("setting %s (%s): %s", key, variable(key), reason(f)))
	}
	return errors.Join(all...)
}

// checkTracing rejects a URL with more than an address and a path: the rest would not be sent.
func checkTracing(t Tracing) error {
	u, err := url.Parse(t.OTLPURL)
	if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fault("tracing.otlp_url", "must be http://host:port or https://host/path, without user or query; a key of the collector goes into OTEL_EXPORTER_OTLP_HEADERS")
	}
	return nil
}

// checkTokens rejects an issuer's client without an issuer.
func checkTokens(t Tokens) error {
	if t.Client != "" && t.HS256Secret == "" && t.JWKSURL == "" {
		return fault("tokens.client", "goes with tokens.hs256_secret or tokens.jwks_url: without them no token is accepted")
	}
	return nil
}

// checkRetention rejects a longer retention for refused jobs than for others.
func checkRetention(r Retention) error {
	if r.Refused > r.Purchases {
		return fault("retention.refused", "is %s, must be at most retention.purchases, %s", r.Refused, r.Purchases)
	}
	return nil
}

// fault returns an error about one setting.
func fault(name, format string, args ...any) error {
	return fmt.Errorf("setting %s (%s): %s", name, variable(name), fmt.Sprintf(format, args...))
}

// listOf returns the elements of a comma separated list; an empty text has none.
func listOf(text string) []string {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	list := strings.Split(text, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}

// reason describes the rule that a value violates. It does not repeat secrets and URLs.
func reason(f validator.FieldError) string {
	switch f.Tag() {
	case "required":
		return "is required"
	case "required_with":
		return "is required together with " + others(f)
	case "excluded_with":
		return "excludes " + others(f) + ": set one of them"
	case "secret":
		return fmt.Sprintf("must have at least %s bytes, as from: openssl rand -base64 %s", f.Param(), f.Param())
	case "client":
		return "must be the client of an API key: 1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit"
	case "http_url":
		return "must be an http:// or https:// URL"
	case "min":
		return fmt.Sprintf("is %v, must be at least %s", f.Value(), f.Param())
	case "max":
		return fmt.Sprintf("is %v, must be at most %s", f.Value(), f.Param())
	case "oneof":
		return fmt.Sprintf("is %q, must be one of: %s", f.Value(), f.Param())
	case "gtefield":
		return fmt.Sprintf("is %v, must be at least %s", f.Value(), others(f))
	case "hostname_port":
		return fmt.Sprintf("is %q, must be host:port", f.Value())
	case "url_of":
		scheme, _, _ := strings.Cut(f.Param(), " ")
		return fmt.Sprintf("must be a URL, %s://…", scheme)
	case "quorum_of":
		scheme, _, _ := strings.Cut(f.Param(), " ")
		return fmt.Sprintf("must be the URLs of an odd number of different servers, %s://…,%s://…,%s://…", scheme, scheme, scheme)
	case "ltefield":
		return fmt.Sprintf("is %v, must be at most %s", f.Value(), others(f))
	case "startswith":
		return "must begin with " + f.Param()
	case "networks":
		return "must be networks like 10.0.0.0/8, separated by commas"
	case "draw_keys":
		return "must be at most 8 keys of 64 hex digits, separated by commas"
	case "hexadecimal", "len":
		return "must be 64 hex digits, as from: openssl rand -hex 32"
	default:
		return fmt.Sprintf("must satisfy %s=%s", f.Tag(), f.Param())
	}
}

// others returns the settings of the same section that a rule refers to.
func others(f validator.FieldError) string {
	path := strings.Split(f.StructNamespace(), ".") // Settings, the sections, the setting
	section := reflect.TypeFor[Settings]()
	for _, name := range path[1 : len(path)-1] {
		field, _ := section.FieldByName(name)
		section = field.Type
	}
	var names []string
	for _, field := range strings.Fields(f.Param()) {
		other, _ := section.FieldByName(field)
		names = append(names, other.Tag.Get("mapstructure"))
	}
	return strings.Join(names, " or ")
}

// drawKeys are up to eight keys of 64 hex digits; package keyring reads them.
var drawKeys = regexp.MustCompile(`^(\s*[0-9a-fA-F]{64}\s*(,\s*[0-9a-fA-F]{64}\s*){0,7})?$`)

// areNetworks is the rule networks: none, or CIDRs without bits of a host.
func areNetworks(f validator.FieldLevel) bool {
	for text := range strings.SplitSeq(f.Field().String(), ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if prefix, err := netip.ParsePrefix(text); err != nil || prefix != prefix.Masked() {
			return false
		}
	}
	return true
}

// areDrawKeys is the rule draw_keys.
func areDrawKeys(f validator.FieldLevel) bool { return drawKeys.MatchString(f.Field().String()) }

var clientName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`) // as package key has it

// isClient is the rule client: the name of a client that an API key may have.
func isClient(f validator.FieldLevel) bool {
	name := f.Field().String()
	return clientName.MatchString(name) && name != "system"
}

// longEnough is the rule secret=N: at least N bytes, unlike min=N, which counts characters.
func longEnough(f validator.FieldLevel) bool {
	n, err := strconv.Atoi(f.Param())
	return err == nil && len(f.Field().String()) >= n
}
