package cli

import (
	"strings"
	"testing"

	"triprize/internal/testkit/fixture"
)

func TestFindSaysWhatAnIDIsOrWhereItLooked(t *testing.T) {
	db := database(t)
	campaign := fixture.Campaign(t, db, fixture.Draft(4))
	fixture.Wallet(t, db, "mina", 1_000_000_000_000)
	for _, c := range []struct {
		args, want string
		status     int
	}{
		{campaign.String(), "GET /v1/campaigns/" + campaign.String(), 0},
		{campaign.String() + " --json", `{"found":[{"what":"campaign","id":"` + campaign.String() + `","state":"active","facts":{`, 0},
		{"mina", " balance=1000000000000 ", 0},
		{"nobody", "nothing found; searched for ids, keys, references and names of: job, purchase, payment,", 1},
		{"nobody --json", `{"found":[]}`, 1},
		{"", "1 arg", 1},
	} {
		stdout, stderr, status := run(append([]string{"find"}, strings.Fields(c.args)...)...)
		if status != c.status || !strings.Contains(stdout+stderr, c.want) {
			t.Errorf("find %s: status %d, %s%s", c.args, status, stdout, stderr)
		}
	}
}
