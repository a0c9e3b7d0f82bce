//go:build failpoint

package config

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"
)

var words = regexp.MustCompile(`([a-z])([A-Z])|([A-Z])([A-Z][a-z])`)

// override sets the fields that only tests set: TRIPRIZE_POSTGRES_LOCK_TIMEOUT is Postgres.LockTimeout, and
// TRIPRIZE_SWEEPS_DUE_ITEMS_INTERVAL the interval of the sweep due-items. It removes these variables from
// environment.
func override(section reflect.Value, prefix string, environment map[string]string) error {
	var faults []error
	for i := range section.NumField() {
		field, value := section.Type().Field(i), section.Field(i)
		name := prefix + "_" + strings.ToUpper(words.ReplaceAllString(field.Name, "$1${3}_$2$4"))
		text, isSet := environment[name]
		switch {
		case value.Kind() == reflect.Struct:
			faults = append(faults, override(value, name, environment))
		case field.Tag.Get("mapstructure") == "-" && isSet:
			delete(environment, name)
			converted, err := convert(text, field.Type)
			if err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", name, err))
				continue
			}
			value.Set(reflect.ValueOf(converted))
		}
	}
	if sweeps, ok := section.Addr().Interface().(*Sweeps); ok {
		sweeps.Every = make(map[string]time.Duration)
		for name, text := range environment {
			if sweep, isInterval := strings.CutSuffix(name, "_INTERVAL"); isInterval && strings.HasPrefix(name, prefix) {
				delete(environment, name)
				every, err := time.ParseDuration(text)
				faults = append(faults, err)
				sweeps.Every[strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(sweep, prefix+"_")), "_", "-")] = every
			}
		}
	}
	return errors.Join(faults...)
}
