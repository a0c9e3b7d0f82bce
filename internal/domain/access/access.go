// Package access says whose resources a caller sees and changes, for every look-up and list.
package access

// Grant selects the resources of one client, or of one of its users, or all. A store leaves out
// the others as if they did not exist. The zero Grant selects nothing, so that a look-up which
// was given none finds nothing.
type Grant struct {
	all          bool
	client, user string
}

// Everything is the grant of operators, and of work that is done for no caller.
func Everything() Grant { return Grant{all: true} }

// OfClient is the grant of an app: the resources of its client, of all of its users.
func OfClient(client string) Grant { return Grant{client: client} }

// OfUser is the grant of a user with a token: its resources at its client. Without a name it
// selects nothing.
func OfUser(client, user string) Grant {
	if user == "" {
		return Grant{}
	}
	return Grant{client: client, user: user}
}

// All reports whether the grant selects everything.
func (g Grant) All() bool { return g.all }

// Sees reports whether the grant selects what belongs to a user at a client.
func (g Grant) Sees(client, user string) bool {
	return g.all || g.client != "" && client == g.client && (g.user == "" || user == g.user)
}

// Client is the only client whose resources there are, for statements; nil: those of every client.
func (g Grant) Client() *string {
	if g.all {
		return nil
	}
	return &g.client
}

// User is the only user whose resources there are, for statements; nil: those of every user.
func (g Grant) User() *string {
	if g.user == "" {
		return nil
	}
	return &g.user
}
