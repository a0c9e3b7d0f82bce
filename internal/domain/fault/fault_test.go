package fault_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"triprize/internal/domain/fault"
)

func TestAnErrorIsFoundThroughWhatWrapsItAndAnUnknownOneIsInternal(t *testing.T) {
	t.Parallel()
	cause := errors.New("disk on fire, password=hunter2")
	known := fault.Wrap(fault.Unavailable, cause, "try again")
	wrapped := fmt.Errorf("sale.Sell: %w", errors.Join(errors.New("and another"), known))
	if got := fault.From(wrapped); got != known || fault.CodeOf(wrapped) != fault.Unavailable || !errors.Is(known, cause) || !errors.Is(wrapped, cause) {
		t.Errorf("got %v", got)
	}
	if text := known.Error(); text != "unavailable: try again: disk on fire, password=hunter2" {
		t.Errorf("it reads %q", text)
	}
	if text := fault.New(fault.NotFound, "no campaign %d", 7).Error(); text != "not-found: no campaign 7" {
		t.Errorf("without a cause it reads %q", text)
	}
	got := fault.From(cause)
	if got.Code != fault.InternalError || got.Code.Kind() != fault.KindInternal || !errors.Is(got, cause) || strings.Contains(got.Message, "hunter2") {
		t.Errorf("got %+v: the text of an unknown cause is not for clients", got)
	}
	if fault.CodeOf(cause) != fault.InternalError || fault.CodeOf(nil) != "" {
		t.Errorf("the codes are %q and %q", fault.CodeOf(cause), fault.CodeOf(nil))
	}
}

func TestAnInvalidRequestNamesItsFields(t *testing.T) {
	t.Parallel()
	fields := []fault.Field{{Pointer: "/name", Detail: "is missing"}, {Pointer: "/price", Detail: "is too low"}}
	err := fault.Invalid(fields...)
	if err.Code != fault.InvalidRequest || !slices.Equal(err.Fields, fields) || err.Message != "/name: is missing" {
		t.Errorf("got %+v", err)
	}
	if err := fault.Invalid(); err.Code != fault.InvalidRequest || err.Message == "" {
		t.Errorf("without fields: %+v", err)
	}
}

// A constant that is missing in the catalogue would be an internal error.
func TestEveryCodeIsDeclaredInKebabCaseWithAKindAndATitleOfItsOwn(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("fault.go")
	if err != nil {
		t.Fatal(err)
	}
	var declared []fault.Code
	for _, d := range regexp.MustCompile(`(?m)^\t\w+ +Code = "([^"]+)"$`).FindAllStringSubmatch(string(source), -1) {
		declared = append(declared, fault.Code(d[1]))
	}
	if codes := slices.Sorted(slices.Values(fault.Codes())); len(codes) == 0 || !slices.Equal(slices.Sorted(slices.Values(declared)), codes) {
		t.Errorf("declared are %v, in the catalogue %v", declared, codes)
	}
	form := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	titles := make(map[string]fault.Code)
	for _, c := range fault.Codes() {
		if !form.MatchString(string(c)) {
			t.Errorf("%q is not kebab-case", c)
		}
		if (c.Kind() == fault.KindInternal) != (c == fault.InternalError) {
			t.Errorf("%s has the kind %d", c, c.Kind())
		}
		if other, taken := titles[c.Title()]; taken || c.Title() == "" {
			t.Errorf("%s and %s share the title %q", c, other, c.Title())
		}
		titles[c.Title()] = c
	}
	const unknown fault.Code = "made-up"
	if unknown.Kind() != fault.KindInternal || unknown.Title() != fault.InternalError.Title() {
		t.Errorf("an unknown code has the kind %d and the title %q", unknown.Kind(), unknown.Title())
	}
}
