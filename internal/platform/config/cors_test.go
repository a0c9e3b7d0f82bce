package config

import (
	"strings"
	"testing"
)

func TestOriginsAreNamedOneByOneAndInFull(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"", "https://shop.example", "https://shop.example:8443,https://a.shop.example", "https://a.example , http://localhost:3000", "http://127.0.0.1:5173", "http://[::1]:80", "http://localhost:*,http://[::1]:*"} {
		if !areOrigins(good, "") {
			t.Errorf("%q is refused", good)
		}
	}
	for _, bad := range []string{
		"*", "https://*.shop.example", "https://shop.example,*", "null", "https://", "shop.example", "https://shop.example/", "https://shop.example/app",
		"https://Shop.example", "https://me@shop.example", "https://shop.example?x", "https://a.example,", "http://shop.example", "ftp://shop.example",
		"https://shop.example:*", "http://shop.example:*", "https://localhost:*", "http://localhost:80:*", "http://*:*", strings.Repeat("https://a.example,", 64) + "https://b.example",
	} {
		if areOrigins(bad, "") {
			t.Errorf("%.40q is accepted", bad)
		}
	}
}

func TestAnOriginOfThisMachineMayStandForEachPort(t *testing.T) {
	t.Parallel()
	api := API{CORSOrigins: "https://shop.example, http://localhost:*"}
	for origin, want := range map[string]bool{
		"https://shop.example": true, "http://localhost:3000": true, "http://localhost:51730": true,
		"https://shop.example:3000": false, "https://localhost:3000": false, "http://localhost": false, "http://localhost:": false,
		"http://localhost:3000.evil.example": false, "http://127.0.0.1:3000": false, "http://localhost.evil.example:3000": false, "null": false, "": false,
	} {
		if got := api.AllowsOrigin(origin); got != want {
			t.Errorf("%q: %v", origin, got)
		}
	}
}
