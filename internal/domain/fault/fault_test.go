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

func TestAnErrorIsFoundThroughWhatWrapsIt(t *testing.T) {
	t.Parallel()
	cause := errors.New("disk on fire")
	known := fault.Wrap(fault.Unavailable, cause, "try again")
	wrapped := fmt.Errorf("sale.Sell: %w", errors.Join(errors.New("and another"), known))
	if got := fault.From(wrapped); got != known {
		t.Errorf("got %v", got)
	}
	if code := fault.CodeOf(wrapped); code != fault.Unavailable {
		t.Errorf("the code is %s", code)
	}
	if !errors.Is(known, cause) || !errors.Is(wrapped, cause) {
		t.Error("the cause is lost")
	}
	if text := known.Error(); text != "unavailable: try again: disk on fire" {
		t.Errorf("it reads %q", text)
	}
	if text := fault.New(fault.NotFound, "no campaign %d", 7).Error(); text != "not-found: no campaign 7" {
		t.Errorf("without a cause it reads %q", text)
	}
}

func TestAnUnknownErrorIsInternalAndItsTextNotForClients(t *testing.T) {
	t.Parallel()
	cause := errors.New("password=hunter2")
	got := fault.From(cause)
	if got.Code != fault.InternalError || got.Code.Kind() != fault.KindInternal || !errors.Is(got, cause) {
		t.Errorf("got %+v", got)
	}
	if strings.Contains(got.Message, "hunter2") {
		t.Errorf("the message repeats the cause: %q", got.Message)
	}
	if code := fault.CodeOf(cause); code != fault.InternalError {
		t.Errorf("the code is %s", code)
	}
	if code := fault.CodeOf(nil); code != "" {
		t.Errorf("of no error the code is %q", code)
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

func TestEveryCodeIsKebabCaseWithAKindAndATitleOfItsOwn(t *testing.T) {
	t.Parallel()
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

// A constant that is missing in the catalogue would be an internal error.
func TestEveryCodeThatIsDeclaredIsInTheCatalogue(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("fault.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^\t(\w+) +Code = "([^"]+)"$`).FindAllStringSubmatch(string(source), -1)
	if len(declared) == 0 {
		t.Fatal("no declarations found: the test does not test")
	}
	names := make(map[string]string)
	for _, d := range declared {
		if other, taken := names[d[2]]; taken {
			t.Errorf("%s and %s are both %q", other, d[1], d[2])
		}
		names[d[2]] = d[1]
		if !slices.Contains(fault.Codes(), fault.Code(d[2])) {
			t.Errorf("%s is not in the catalogue", d[1])
		}
	}
	if len(declared) != len(fault.Codes()) {
		t.Errorf("%d codes declared, %d in the catalogue", len(declared), len(fault.Codes()))
	}
}

// What a client may do about a code is a promise: these kinds do not change.
func TestTheKindsOfTheContract(t *testing.T) {
	t.Parallel()
	for kind, codes := range map[fault.Kind][]fault.Code{
		fault.KindInvalid:         {fault.InvalidRequest, fault.KeyMissing, fault.KeyInvalid},
		fault.KindUnauthenticated: {fault.Unauthenticated},
		fault.KindForbidden:       {fault.Forbidden},
		fault.KindNotFound:        {fault.NotFound},
		fault.KindMismatch:        {fault.VersionMismatch},
		fault.KindReused:          {fault.KeyReused},
		fault.KindLimited:         {fault.RateLimited},
		fault.KindUnavailable:     {fault.Unavailable, fault.Overloaded},
		fault.KindConflict: {fault.CampaignNotActive, fault.CampaignPaused, fault.SaleNotOpen, fault.SoldOut, fault.NoneAvailable,
			fault.PurchaseLimitExceeded, fault.InsufficientFunds, fault.NotSoldOut, fault.StateConflict, fault.ReservationExpired},
	} {
		for _, c := range codes {
			if c.Kind() != kind {
				t.Errorf("%s has the kind %d, want %d", c, c.Kind(), kind)
			}
		}
	}
}
