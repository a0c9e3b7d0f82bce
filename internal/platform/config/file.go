package config

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-playground/validator/v10"
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

// quoted quotes texts, so that an empty one is visible.
func quoted(value any) any {
	if text, ok := value.(string); ok {
		return strconv.Quote(text)
	}
	return value
}

// isURLOf validates url_of=SCHEME …: a URL of one of the schemes.
func isURLOf(f validator.FieldLevel) bool {
	return hasScheme(f.Field().String(), f.Param())
}

func hasScheme(text, schemes string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Opaque == "" && slices.Contains(strings.Fields(schemes), u.Scheme)
}

// isQuorumOf validates quorum_of=SCHEME …: comma separated URLs of an odd number of different Redis servers. An even
// number is rejected, because it tolerates no more failures than one server less.
func isQuorumOf(f validator.FieldLevel) bool {
	urls := Locks{RedisURLs: f.Field().String()}.URLs()
	servers := make(map[string]bool)
	for _, text := range urls {
		if !hasScheme(text, f.Param()) {
			return false
		}
		servers[server(text)] = true
	}
	return len(urls)%2 == 1 && len(servers) == len(urls)
}

// server returns the server in a Redis URL, without the database: databases of one server are not independent.
func server(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return text
	case u.Scheme == "unix":
		return u.Path
	}
	host, port := u.Hostname(), u.Port()
	if host == "" {
		host = "localhost"
	}
	if port == "" {
		port = "6379"
	}
	return net.JoinHostPort(strings.ToLower(host), port)
}

// mergeFile overrides the defaults with a file. It rejects unknown settings and settings without a value.
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

// dropEmpty removes sections without content, for example if all of it is commented out.
func dropEmpty(section map[string]any) {
	maps.DeleteFunc(section, func(_ string, content any) bool { return content == nil })
	for _, content := range section {
		if inside, nested := content.(map[string]any); nested {
			dropEmpty(inside)
		}
	}
}

// faultsOf returns the faults of a section, sorted by name.
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

// Overrides are settings of a file that override those of another. The zero value has none.
type Overrides struct{ own *viper.Viper }

// ReadOverrides reads a file. It rejects unknown settings and reserved settings or sections.
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
