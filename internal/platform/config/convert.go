package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-playground/validator/v10"
	"github.com/spf13/viper"
)

// convertAll gives every setting the type that Settings has for it. The library
// that fills in Settings would turn 3.7 into 3, the duration 5 into 5 ns, and an
// empty value into false. source tells where a value comes from, for errors.
func convertAll(v *viper.Viper, fields map[string]reflect.StructField, source func(key string) string) error {
	var faults []error
	for _, key := range slices.Sorted(slices.Values(v.AllKeys())) {
		field, ok := fields[key]
		if !ok {
			continue // a default without a field is found when Settings are filled in
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

// convert returns a value of a file, or a text of the environment, as a t. Its
// errors do not repeat the values of text settings: they may be secrets.
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

// quoted shows texts in quotes, so that an empty one can be seen.
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

// isQuorumOf validates quorum_of=SCHEME …: comma separated URLs of an odd number
// of different Redis servers. An even number is refused: with one server more the
// majority is larger too, so no more servers may fail.
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

// server returns the server in the URL of a Redis, without the database: two
// databases of one server are not independent.
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
