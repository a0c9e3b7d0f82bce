package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// mostOrigins bounds a list that is looked through for each request of a browser.
const mostOrigins = 64

// checkCORS refuses what is no list of origins, https://shop.example: a browser would never
// say that it is one, or all pages of the world could act for a user whose token they have got.
func checkCORS(api API) error {
	if api.CORSOrigins == "" {
		return nil
	}
	origins := strings.Split(api.CORSOrigins, ",")
	if len(origins) > mostOrigins {
		return badOrigins("has %d origins, must have at most %d", len(origins), mostOrigins)
	}
	for _, origin := range origins {
		if err := checkOrigin(strings.TrimSpace(origin)); err != nil {
			return err
		}
	}
	return nil
}

func checkOrigin(origin string) error {
	if strings.Contains(origin, "*") {
		return badOrigins("is %q, must name each origin in full: with * every page could call the API with the token of its visitor", origin)
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || origin != u.Scheme+"://"+u.Host || origin != strings.ToLower(origin) {
		return badOrigins("is %q, must be scheme and host in lower case, and the port if it is not the usual one, such as https://shop.example; no path", origin)
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !onThisMachine(u.Hostname())) {
		return badOrigins("is %q, must be https://…; http:// only on this machine", origin)
	}
	return nil
}

func onThisMachine(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

func badOrigins(format string, args ...any) error {
	const key = "api.cors_origins"
	return errors.New("setting " + key + " (" + variable(key) + "): " + fmt.Sprintf(format, args...))
}
