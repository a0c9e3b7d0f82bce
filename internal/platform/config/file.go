package config

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"
)

// mergeFile overrides the defaults with a file. It refuses settings that the
// defaults do not have, and settings without a value.
func mergeFile(v *viper.Viper, file string, known []string) error {
	data, err := os.ReadFile(file) //nolint:gosec // the operator names the file
	if err != nil {
		return fmt.Errorf("settings file: %w", err)
	}
	var sections map[string]any
	if err := yaml.Unmarshal(data, &sections); err != nil {
		return fmt.Errorf("settings file %s: %w", file, err)
	}
	var faults []error
	for _, fault := range faultsOf(sections, "", known) {
		faults = append(faults, fmt.Errorf("settings file %s: %s", file, fault))
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	dropEmpty(sections)
	return v.MergeConfigMap(sections)
}

// dropEmpty drops sections without content: for example, all of it is commented out.
func dropEmpty(section map[string]any) {
	maps.DeleteFunc(section, func(_ string, content any) bool { return content == nil })
	for _, content := range section {
		if inside, nested := content.(map[string]any); nested {
			dropEmpty(inside)
		}
	}
}

// faultsOf returns what is wrong with the names in a section, sorted by name.
func faultsOf(section map[string]any, prefix string, known []string) (faults []string) {
	for _, name := range slices.Sorted(maps.Keys(section)) {
		key := prefix + strings.ToLower(name)
		content := section[name]
		inside, nested := content.(map[string]any)
		isSection := slices.ContainsFunc(known, func(k string) bool { return strings.HasPrefix(k, key+".") })
		switch {
		case slices.Contains(known, key) && content == nil:
			faults = append(faults, "setting "+key+" has no value")
		case slices.Contains(known, key), isSection && content == nil:
		case nested && (isSection || len(inside) > 0):
			faults = append(faults, faultsOf(inside, key+".", known)...)
		default:
			faults = append(faults, "unknown setting "+key)
		}
	}
	return faults
}

// Overrides are the settings of a file that come before those of another one. The zero value
// has none.
type Overrides struct{ own *viper.Viper }

// ReadOverrides reads a file. It refuses unknown settings, and those that are reserved: settings,
// or whole sections.
func ReadOverrides(file string, reserved ...string) (Overrides, error) {
	own := viper.New()
	if err := mergeFile(own, file, slices.Collect(maps.Keys(fieldsOf(reflect.TypeFor[Settings](), "")))); err != nil {
		return Overrides{}, err
	}
	var faults []error
	for _, key := range own.AllKeys() {
		if slices.ContainsFunc(reserved, func(r string) bool { return key == r || strings.HasPrefix(key, r+".") }) {
			faults = append(faults, fmt.Errorf("settings file %s: setting %s cannot be chosen here", file, key))
		}
	}
	slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return Overrides{own}, errors.Join(faults...)
}

// Has tells whether a setting is among them.
func (o Overrides) Has(key string) bool { return o.own != nil && o.own.IsSet(key) }

// Over returns a text of settings in YAML with these instead, where it has them.
func (o Overrides) Over(text []byte) ([]byte, error) {
	if o.own == nil {
		return text, nil
	}
	v := viper.New()
	v.SetConfigType("yaml")
	if err := errors.Join(v.ReadConfig(bytes.NewReader(text)), v.MergeConfigMap(o.own.AllSettings())); err != nil {
		return nil, fmt.Errorf("config.Over: %w", err)
	}
	return yaml.Marshal(v.AllSettings())
}
