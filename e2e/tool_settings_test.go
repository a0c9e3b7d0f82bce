package e2e

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/testkit/servers"
)

// What works without the api needs the URL of Postgres alone; the rest needs the api and a key.
func TestACommandNeedsOnlyTheSettingsThatItUses(t *testing.T) {
	t.Parallel()
	settings := servers.Settings(t)
	postgres := []string{"TRIPRIZE_POSTGRES_URL=" + settings.Postgres.URL}
	api := []string{"TRIPRIZE_API=http://127.0.0.1:1", "TRIPRIZE_KEY=tp_1"} // nobody listens there
	for _, c := range []struct {
		env  []string
		args string
		want string
		isOK bool
	}{
		{postgres, "migrate up", "up to date", true}, {postgres, "migrate status", "", true}, {postgres, "audit", "", true}, {postgres, "key list", "", true},
		{postgres, "key create --role app --client shop-1", "tp_", true},
		{api, "webhooks enable " + uuid.NewString(), "connection refused", false}, {api, "payments list", "connection refused", false},
		{postgres, "webhooks enable " + uuid.NewString(), "TRIPRIZE_API and TRIPRIZE_KEY are required", false},
	} {
		stdout, stderr, status := run(t, c.env, strings.Fields(c.args)...)
		if !strings.Contains(stdout+stderr, c.want) || (status == 0) != c.isOK {
			t.Errorf("%s: status %d, %s%s", c.args, status, stdout, stderr)
		}
	}
}
