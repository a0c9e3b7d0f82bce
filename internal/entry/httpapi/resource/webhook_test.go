package resource_test

import (
	"testing"
	"time"

	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/webhook"
)

func TestOnlyOperatorsSeeWhyAnAddressWasNotReached(t *testing.T) {
	t.Parallel()
	details, failure, answered := "lookup db.internal on 10.0.0.2:53: no such host", "unreachable", "answered 500"
	list := []webhook.Attempt{{Duration: time.Second, Error: &details, Failure: &failure}, {Duration: time.Second, Error: &answered}}
	for role, want := range map[resource.Role]struct {
		text string
		ms   int
	}{resource.App: {failure, 0}, resource.Operator: {details, 1000}} {
		shown := resource.WebhookAttempts(list, role)
		if *shown[0].Error != want.text || shown[0].DurationMs != want.ms || *shown[1].Error != answered || shown[1].DurationMs != 1000 {
			t.Errorf("%s: %+v", role, shown)
		}
	}
}
