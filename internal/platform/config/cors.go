package config

import (
	"net/url"
	"strings"
)

// mostOrigins bounds a list that is looked through for each request of a browser.
const mostOrigins = 64

// checkCORS refuses what is no list of origins, https://shop.example: a browser would never
// say that it is one, or all pages of the world could act for a user whose token they have got.
func checkCORS(api API) error {
	origins := listOf(api.CORSOrigins)
	if len(origins) > mostOrigins {
		return fault("api.cors_origins", "has %d origins, must have at most %d", len(origins), mostOrigins)
	}
	for _, origin := range origins {
		if err := checkOrigin(origin); err != nil {
			return err
		}
	}
	return nil
}

func checkOrigin(origin string) error {
	if strings.Contains(origin, "*") {
		return fault("api.cors_origins", "is %q, must name each origin in full: with * every page could call the API with the token of its visitor", origin)
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || origin != u.Scheme+"://"+u.Host || origin != strings.ToLower(origin) {
		return fault("api.cors_origins", "is %q, must be scheme and host in lower case, and the port if it is not the usual one, such as https://shop.example; no path", origin)
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())) {
		return fault("api.cors_origins", "is %q, must be https://…; http:// only on this machine", origin)
	}
	return nil
}
