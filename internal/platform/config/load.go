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
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

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
	// OperatorVariable is the name of who uses the operators' tool, for the audit trail.
	OperatorVariable = "TRIPRIZE_OPERATOR"
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
		own, err := readFile(file, known)
		if err != nil {
			return Settings{}, err
		}
		if err := v.MergeConfigMap(own.AllSettings()); err != nil {
			return Settings{}, fmt.Errorf("settings file %s: %w", file, err)
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
		if name, isSet := bound[key]; isSet {
			return name
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

// fileSuffix marks a variable that names a file with the value, such as a secret of Docker or Kubernetes.
const fileSuffix = "_FILE"

// setFromEnvironment overrides setting a.b with TRIPRIZE_A_B, or with the content of the file that TRIPRIZE_A_B_FILE
// names, and returns the variable of each such setting. It rejects variables with our prefix that name no setting.
func setFromEnvironment(v *viper.Viper, known []string, environment map[string]string) (bound map[string]string, err error) {
	names := make(map[string]string, len(known))
	for _, key := range known {
		names[variable(key)] = key
	}
	bound = make(map[string]string)
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(environment)) {
		if !strings.HasPrefix(name, envPrefix+"_") || name == FileVariable || name == APIVariable || name == KeyVariable || name == OperatorVariable || strings.HasPrefix(name, testPrefix) {
			continue
		}
		value := environment[name]
		key, ok := names[name]
		if !ok {
			if key, ok = names[strings.TrimSuffix(name, fileSuffix)]; !ok {
				faults = append(faults, fmt.Errorf("environment: unknown setting %s", name))
				continue
			}
			content, err := os.ReadFile(value) //nolint:gosec // the operator names it
			if failed, ok := errors.AsType[*fs.PathError](err); ok {
				err = failed.Err // without the path: by mistake it may be the secret
			}
			if err != nil {
				faults = append(faults, fmt.Errorf("setting %s (%s): %w", key, name, err))
				continue
			}
			value = strings.TrimRight(string(content), "\r\n")
		}
		if other, isSet := bound[key]; isSet {
			faults = append(faults, fmt.Errorf("setting %s: %s and %s are both set; unset one", key, other, name))
			continue
		}
		v.Set(key, value)
		bound[key] = name
	}
	return bound, errors.Join(faults...)
}

// variable returns the environment variable of a setting: postgres.url is TRIPRIZE_POSTGRES_URL.
func variable(key string) string {
	return envPrefix + "_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}
