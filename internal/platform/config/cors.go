package config

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// maxOrigins bounds a list that is searched for each request of a browser.
const maxOrigins = 64

// anyPort is the suffix of a loopback origin that matches every port, for development servers.
const anyPort = ":*"

// AllowsOrigin reports whether pages of an origin may call the API from a browser.
func (a API) AllowsOrigin(origin string) bool {
	origins := listOf(a.CORSOrigins)
	host, port := origin, ""
	if at := strings.LastIndexByte(origin, ':'); at > 0 {
		if _, err := strconv.ParseUint(origin[at+1:], 10, 16); err == nil {
			host, port = origin[:at], origin[at+1:]
		}
	}
	return slices.Contains(origins, origin) || port != "" && slices.Contains(origins, host+anyPort)
}

// checkCORS rejects everything that is not a list of origins like https://shop.example: other texts would match no
// browser's origin, and a wildcard would let any page use a token that it obtained.
func checkCORS(api API) error {
	origins := listOf(api.CORSOrigins)
	if len(origins) > maxOrigins {
		return fault("api.cors_origins", "has %d origins, must have at most %d", len(origins), maxOrigins)
	}
	for _, origin := range origins {
		if err := checkOrigin(origin); err != nil {
			return err
		}
	}
	return nil
}

func checkOrigin(named string) error {
	origin, each := strings.CutSuffix(named, anyPort)
	if strings.Contains(origin, "*") {
		return fault("api.cors_origins", "is %q, must name each origin in full: with * every page could call the API with the token of its visitor", named)
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || origin != u.Scheme+"://"+u.Host || origin != strings.ToLower(origin) || each && u.Port() != "" {
		return fault("api.cors_origins", "is %q, must be scheme and host in lower case, and the port if it is not the usual one, such as https://shop.example; no path", named)
	}
	here := u.Scheme == "http" && loopback(u.Hostname())
	if each && !here {
		return fault("api.cors_origins", "is %q, must name its port: only http:// on this machine may have %s", named, anyPort)
	}
	if u.Scheme != "https" && !here {
		return fault("api.cors_origins", "is %q, must be https://…; http:// only on this machine", named)
	}
	return nil
}
