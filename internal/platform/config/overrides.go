package config

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"
)

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
