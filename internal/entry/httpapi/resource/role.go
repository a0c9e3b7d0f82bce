package resource

import (
	"triprize/internal/platform/token"
	"triprize/internal/store/apikey"
)

// Role is who looks at a document, or asks for work; the contract lists the roles of each
// operation.
type Role string

// The roles: of API keys, and of tokens.
const (
	Operator  = Role(apikey.Operator) // everything
	App       = Role(apikey.App)      // all that is its client's
	User      = Role(token.User)      // its own purchases
	Viewer    = Role(token.Viewer)    // reads without personal data
	Anonymous = Role("anonymous")     // has no credential; its client is its address
)
