package e2e

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/testkit/servers"
)

// Where the runbooks name one URL, or two, no other setting is needed.
func TestACommandNeedsOnlyTheSettingsThatItUses(t *testing.T) {
	t.Parallel()
	settings := servers.Settings(t)
	postgres, both := []string{"TRIPRIZE_POSTGRES_URL=" + settings.Postgres.URL}, []string{"TRIPRIZE_POSTGRES_URL=" + settings.Postgres.URL, "TRIPRIZE_REDIS_URL=" + settings.Redis.URL}
	for _, c := range []struct {
		env  []string
		args string
		want string
	}{
		{postgres, "migrate up", "up to date"}, {postgres, "migrate status", ""}, {postgres, "audit", ""}, {postgres, "key list", ""},
		{postgres, "key create --role app --client shop-1", "tp_"},
		{both, "webhooks enable " + uuid.NewString(), "there is no webhook endpoint"}, {both, "webhooks disable " + uuid.NewString(), "there is no webhook endpoint"},
		{both, "webhooks create --client shop-1 --url https://shop.example --events *", "draw.secret_key"},
	} {
		stdout, stderr, status := run(t, c.env, strings.Fields(c.args)...)
		if !strings.Contains(stdout+stderr, c.want) || (status == 0) != (c.env[len(c.env)-1] == postgres[0]) {
			t.Errorf("%s: status %d, %s%s", c.args, status, stdout, stderr)
		}
	}
}
