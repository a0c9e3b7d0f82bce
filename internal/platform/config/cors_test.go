package config

import (
	"strings"
	"testing"
)

func TestOriginsAreNamedOneByOneAndInFull(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"", "https://shop.example", "https://shop.example:8443,https://a.shop.example", "https://a.example , http://localhost:3000", "http://127.0.0.1:5173", "http://[::1]:80", "http://localhost:*,http://[::1]:*"} {
		if err := checkCORS(API{CORSOrigins: good}); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for bad, reason := range map[string]string{
		"*": "every page", "https://*.shop.example": "every page", "https://shop.example,*": "every page", "null": "lower case", "https://": "lower case",
		"shop.example": "lower case", "https://shop.example/": "no path", "https://shop.example/app": "no path", "https://Shop.example": "lower case",
		"https://me@shop.example": "lower case", "https://shop.example?x": "no path", "https://a.example,": "lower case", "http://shop.example": "only on this machine",
		"ftp://shop.example": "https://", "https://shop.example:*": "must name its port", "http://shop.example:*": "must name its port",
		"http://localhost:80:*": "lower case", "http://*:*": "every page", strings.Repeat("https://a.example,", 64) + "https://b.example": "at most 64",
	} {
		if err := checkCORS(API{CORSOrigins: bad}); err == nil || !strings.Contains(err.Error(), reason) || !strings.Contains(err.Error(), "TRIPRIZE_API_CORS_ORIGINS") {
			t.Errorf("%.40q: %v, want something about %q", bad, err, reason)
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
