package config

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"
)

// convertAll converts every setting to its type in Settings. The library that fills Settings would turn 3.7 into
// 3, the duration 5 into 5 ns, and an empty value into false. source returns where a value comes from, for errors.
func convertAll(v *viper.Viper, fields map[string]reflect.StructField, source func(key string) string) error {
	var faults []error
	for _, key := range slices.Sorted(slices.Values(v.AllKeys())) {
		field, ok := fields[key]
		if !ok {
			continue // a default without a field is detected when Settings are filled
		}
		value, err := convert(v.Get(key), field.Type)
		if err != nil {
			faults = append(faults, fmt.Errorf("setting %s (%s): %w", key, source(key), err))
			continue
		}
		v.Set(key, value)
	}
	return errors.Join(faults...)
}

// convert converts a value of a file or the environment to t. Errors do not repeat the values of text settings,
// which may be secrets.
func convert(value any, t reflect.Type) (any, error) {
	text, isText := value.(string)
	switch {
	case t == reflect.TypeFor[time.Duration]():
		if value == 0 {
			return time.Duration(0), nil
		}
		d, err := time.ParseDuration(text)
		if !isText || err != nil {
			return nil, fmt.Errorf("%v is not a duration with its unit, such as 250ms, 5s or 10m", quoted(value))
		}
		return d, nil
	case t == reflect.TypeFor[[]string]():
		return textsOf(value)
	case t.Kind() == reflect.String:
		if !isText {
			return nil, errors.New("must be a text; put it in quotes")
		}
		return text, nil
	case t.Kind() == reflect.Bool:
		b, err := strconv.ParseBool(fmt.Sprint(value))
		if err != nil {
			return nil, fmt.Errorf("%v is neither true nor false", quoted(value))
		}
		return b, nil
	case t.Kind() == reflect.Float64:
		x, err := strconv.ParseFloat(fmt.Sprint(value), 64)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
			return nil, fmt.Errorf("%v is not a number, such as 0.01", quoted(value))
		}
		return x, nil
	default:
		n, err := strconv.ParseInt(fmt.Sprint(value), 10, t.Bits())
		if _, fraction := value.(float64); err != nil || fraction {
			return nil, fmt.Errorf("%v is not a whole number in the range", quoted(value))
		}
		return reflect.ValueOf(n).Convert(t).Interface(), nil
	}
}

// textsOf converts a list of texts, or a text with commas.
func textsOf(value any) (texts []string, err error) {
	if text, isText := value.(string); isText {
		return listOf(text), nil
	}
	list, isList := value.([]any)
	if !isList {
		return nil, errors.New("must be a list of texts, or one text with commas")
	}
	for _, one := range list {
		text, isText := one.(string)
		if !isText {
			return nil, errors.New("must have texts only; put them in quotes")
		}
		texts = append(texts, strings.TrimSpace(text))
	}
	return texts, nil
}

// quoted quotes texts, so that an empty one is visible.
func quoted(value any) any {
	if text, ok := value.(string); ok {
		return strconv.Quote(text)
	}
	return value
}

// readFile reads a file. It rejects unknown settings and settings without a value.
func readFile(file string, known []string) (*viper.Viper, error) {
	own := viper.New()
	own.SetConfigFile(file)
	own.SetConfigType("yaml")
	if err := own.ReadInConfig(); err != nil {
		return nil, fmt.Errorf("settings file %s: %w", file, err)
	}
	var faults []error
	for _, key := range slices.Sorted(slices.Values(own.AllKeys())) {
		isSection := slices.ContainsFunc(known, func(k string) bool { return strings.HasPrefix(k, key+".") })
		switch hasValue := own.Get(key) != nil; {
		case isSection && !hasValue: // all of it is commented out
		case !slices.Contains(known, key):
			faults = append(faults, fmt.Errorf("settings file %s: unknown setting %s", file, key))
		case !hasValue:
			faults = append(faults, fmt.Errorf("settings file %s: setting %s has no value", file, key))
		}
	}
	return own, errors.Join(faults...)
}

// Overrides are settings of a file that override those of another. The zero value has none.
type Overrides struct{ own *viper.Viper }

// ReadOverrides reads a file. It rejects unknown settings and reserved settings or sections.
func ReadOverrides(file string, reserved ...string) (Overrides, error) {
	own, err := readFile(file, slices.Collect(maps.Keys(fieldsOf(reflect.TypeFor[Settings](), ""))))
	if err != nil {
		return Overrides{}, err
	}
	var faults []error
	for _, key := range slices.Sorted(slices.Values(own.AllKeys())) {
		if own.Get(key) != nil && slices.ContainsFunc(reserved, func(r string) bool { return key == r || strings.HasPrefix(key, r+".") }) {
			faults = append(faults, fmt.Errorf("settings file %s: setting %s cannot be chosen here", file, key))
		}
	}
	return Overrides{own}, errors.Join(faults...)
}

// Has reports whether a setting is overridden.
func (o Overrides) Has(key string) bool { return o.own != nil && o.own.IsSet(key) }

// Over returns settings in YAML with the overrides applied.
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
