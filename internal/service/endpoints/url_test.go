package endpoints_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"triprize/internal/service/endpoints"
)

func public(addr netip.Addr) error {
	if addr.IsPrivate() || addr.IsLoopback() || addr.IsLinkLocalUnicast() || addr.IsUnspecified() {
		return errors.New("it is not public")
	}
	return nil
}

func TestOnlyAddressesThatEventsMayBeSentToAreTaken(t *testing.T) {
	t.Parallel()
	strict, lax := endpoints.URLRules{Allowed: public}, endpoints.URLRules{Allowed: func(netip.Addr) error { return nil }, PlainHTTP: true}
	for url, says := range map[string]string{
		"https://shop.example/triprize":       "",
		"https://shop.example:8443/a?b=c":     "",
		"https://SHOP.example./":              "",
		"https://xn--bcher-kva.example/":      "",
		"https://8.8.8.8/":                    "",
		"https://[2001:4860:4860::8888]:1/":   "",
		"http://shop.example/":                "begin with https",
		"ftp://shop.example/":                 "absolute https",
		"https:///triprize":                   "absolute https",
		"https:shop.example":                  "absolute https",
		"//shop.example/":                     "absolute https",
		"https://jane:pw@shop.example/":       "user name",
		"https://jane@shop.example/":          "user name",
		"https://shop.example@127.0.0.1/":     "user name",
		"https://shop.example/#there":         "fragment",
		"https://shop.example/#":              "fragment",
		"https://shop.example:0/":             "port",
		"https://shop.example:65536/":         "port",
		"https://shop.example:/":              "port",
		"https://shop.example:http/":          "not a URL",
		"https://sh op.example/":              "not a URL",
		"https://127.0.0.1/":                  "not sent to",
		"https://10.1.2.3/":                   "not sent to",
		"https://169.254.169.254/latest":      "not sent to",
		"https://0.0.0.0/":                    "not sent to",
		"https://[::1]/":                      "not sent to",
		"https://[::ffff:127.0.0.1]/":         "not sent to",
		"https://[fe80::1%25eth0]/":           "zone",
		"https://[fd00::1]/":                  "not sent to",
		"https://localhost/":                  "this machine",
		"https://LOCALHOST./":                 "this machine",
		"https://a.localhost/":                "this machine",
		"https://2130706433/":                 "usual notation",
		"https://0x7f000001/":                 "usual notation",
		"https://0x7f.1/":                     "usual notation",
		"https://017700000001/":               "usual notation",
		"https://0177.0.0.1/":                 "usual notation",
		"https://127.1/":                      "usual notation",
		"https://127.0.0.1./":                 "usual notation",
		"https://127.0.0.09/":                 "usual notation",
		"https://99999999999999999999999/":    "usual notation",
		"https://bücher.example/":             "xn--",
		"https://" + strings.Repeat("a", 254): "no name",
	} {
		err := strict.Check(url)
		switch {
		case says == "" && err != nil:
			t.Errorf("%s: %v", url, err)
		case says != "" && (err == nil || !strings.Contains(err.Error(), says)):
			t.Errorf("%s: want %q, got %v", url, says, err)
		}
	}
	for _, url := range []string{"http://127.0.0.1:3000/hook", "http://localhost:3000/", "http://[::1]:3000/", "http://receiver:3000/"} {
		if err := lax.Check(url); err != nil {
			t.Errorf("where it is allowed, %s: %v", url, err)
		}
	}
}
