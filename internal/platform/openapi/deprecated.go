package openapi

import (
	"errors"
	"fmt"
	"time"
)

// leastNotice is how long clients have at least, from the day on which an operation is
// deprecated to the day on which it is gone: docs/api.md promises it.
const leastNotice = 180 * 24 * time.Hour

// readDeprecation reads since when an operation is deprecated (x-deprecated-at) and from
// when on it will be gone (x-sunset, which may be missing): dates in UTC.
func (o *Operation) readDeprecation(operation node) (err error) {
	deprecated, _ := operation["deprecated"].(bool)
	_, dated := operation["x-deprecated-at"]
	_, ends := operation["x-sunset"]
	switch {
	case !deprecated && (dated || ends):
		return errors.New("x-deprecated-at and x-sunset are for what is deprecated")
	case !deprecated:
		return nil
	}
	if o.DeprecatedAt, err = dateIn(operation, "x-deprecated-at"); err != nil || !ends {
		return err
	}
	if o.Sunset, err = dateIn(operation, "x-sunset"); err != nil {
		return err
	}
	if o.Sunset.Sub(o.DeprecatedAt) < leastNotice {
		return fmt.Errorf("x-sunset is less than %d days after x-deprecated-at", int(leastNotice.Hours()/24))
	}
	return nil
}

// dateIn reads a date, which YAML may have taken for a time.
func dateIn(operation node, name string) (time.Time, error) {
	switch value := operation[name].(type) {
	case time.Time:
		return value, nil
	case string:
		date, err := time.Parse(time.DateOnly, value)
		if err != nil {
			return time.Time{}, fmt.Errorf("%s must be a date, such as 2026-12-01", name)
		}
		return date, nil
	default:
		return time.Time{}, fmt.Errorf("what is deprecated needs %s, a date such as 2026-12-01", name)
	}
}
