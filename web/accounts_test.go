//go:build web

package web_test

import (
	"bufio"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"triprize/devkit/devstack"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// Three persons sign in at a certified provider that nobody here wrote: support looks and cannot act, ops asks to cancel a
// campaign, finance agrees, and the trail names them.
func TestThreePersonsSignInAtAProviderOfAccounts(t *testing.T) {
	t.Parallel()
	address, err := devstack.FreeAddress()
	servers.NoError(t, err)
	issuer := "http://" + address
	s := fleet.Start(t, fleet.Options{Env: []string{"TRIPRIZE_CONSOLE_OIDC_ISSUER=" + issuer, "TRIPRIZE_CONSOLE_OIDC_CLIENT_ID=triprize", "TRIPRIZE_CONSOLE_OIDC_CLIENT_SECRET=a secret of the client",
		"TRIPRIZE_CONSOLE_OIDC_SCOPES=openid email profile groups", "TRIPRIZE_CONSOLE_OIDC_ROLES_OPERATOR=ops", "TRIPRIZE_CONSOLE_OIDC_ROLES_APPROVER=finance",
		"TRIPRIZE_CONSOLE_OIDC_ROLES_VIEWER=support,helpdesk", "TRIPRIZE_APPROVALS_REQUIRED=campaign.cancel"}})
	library, err := filepath.Abs("../tools/npm/node_modules/oidc-provider/lib/index.js")
	servers.NoError(t, err)
	provider := exec.CommandContext(t.Context(), "node", "testdata/provider.mjs", library, address[len("127.0.0.1:"):], s.URLs[0]+"/console/sign-in/callback", s.URLs[0]+"/console/sign-in")
	provider.Env, provider.Stderr = append(os.Environ(), fleet.NodeEnv(t)...), os.Stderr
	out, err := provider.StdoutPipe()
	servers.NoError(t, err)
	servers.NoError(t, provider.Start())
	t.Cleanup(func() { _ = provider.Process.Kill(); _ = provider.Wait() })
	for lines := bufio.NewScanner(out); lines.Text() != "ready"; {
		if !lines.Scan() {
			t.Fatal("the provider does not start")
		}
	}

	id := s.Campaign(3)
	campaign := "/console/campaigns/" + id.String()
	as := func(name, page string) *tab {
		p := visit(s, page)
		p.press(http.StatusOK, "main a") // to the provider
		p.press(http.StatusOK, "button[type=submit]", "login", name+"@shop.example", "password", "any")
		p.press(http.StatusOK, "button[type=submit]") // the provider asks for a consent
		p.isAt(page)
		p.shows(name + "@shop.example")
		return p
	}
	support := as("support", campaign)
	support.until(`document.querySelector('a[href$="/cancel"]') === null && !document.body.innerText.includes("Keys")`)
	support.run(chromedp.Navigate(s.URLs[0] + campaign + "/cancel"))
	support.shows("this needs the role operator")

	ops := as("ops", campaign+"/cancel")
	ops.press(http.StatusOK, "form.action button", "/reason", "the prizes are lost", "typed", s.CampaignNow(id).Name)
	ops.shows("another person must approve", "the prizes are lost", "ops@shop.example")
	var request string
	ops.eval(`location.pathname`, &request)
	ops.until(`![...document.querySelectorAll("main button")].some((b) => b.innerText === "Approve")`)

	finance := as("finance", request)
	finance.shows("the prizes are lost", "ops@shop.example")
	finance.press(http.StatusOK, `button[formaction$="/approve"]`, "/reason", "the insurer knows")
	finance.shows("The request is approved", "finance@shop.example")
	servers.Eventually(t, "the campaign is cancelled", func() bool { return s.CampaignNow(id).State == "cancelled" })
	finance.run(chromedp.Navigate(s.URLs[0] + "/console/trail"))
	finance.shows("cancelCampaign", "ops@shop.example", "approved by finance@shop.example", "the insurer knows", "account ops@shop.example at "+issuer)

	// Its roles are read anew after an hour, unnoticed.
	servers.Exec(t, s.DB, `UPDATE console_sessions SET checked_at = checked_at - interval '61 minutes'`)
	servers.Eventually(t, "the roles are read anew", func() bool { // a session is cached for seconds
		support.run(chromedp.Navigate(s.URLs[0] + campaign))
		return servers.Value[bool](t, s.DB, `SELECT checked_at > created_at + interval '1 second' FROM console_sessions WHERE email = 'support@shop.example'`)
	})
	support.isAt(campaign)
	support.shows("support@shop.example")
}
