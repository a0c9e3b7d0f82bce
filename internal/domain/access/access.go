// Package access decides whose resources a caller may see and change.
package access

// Grant selects the resources of one client, of one of its users, or all. Other resources are treated as missing. The
// zero Grant selects nothing.
type Grant struct {
	all          bool
	client, user string
}

// Everything is the grant of operators and of work without a caller.
func Everything() Grant { return Grant{all: true} }

// OfClient is the grant of an app: the resources of its client with all users.
func OfClient(client string) Grant { return Grant{client: client} }

// OfUser is the grant of a user with a token: its resources at its client. An empty user selects nothing.
func OfUser(client, user string) Grant {
	if user == "" {
		return Grant{}
	}
	return Grant{client: client, user: user}
}

// All reports whether the grant selects everything.
func (g Grant) All() bool { return g.all }

// Sees reports whether the grant selects the resources of a user at a client.
func (g Grant) Sees(client, user string) bool {
	return g.all || g.client != "" && client == g.client && (g.user == "" || user == g.user)
}

// Client returns the client to filter by; nil: no filter.
func (g Grant) Client() *string {
	if g.all {
		return nil
	}
	return &g.client
}

// User returns the user to filter by; nil: no filter.
func (g Grant) User() *string {
	if g.user == "" {
		return nil
	}
	return &g.user
}
