//go:build !failpoint

package failpoint

// Enabled tells whether this binary has failpoints.
const Enabled = false

// Hit marks the moment name; about returns what it concerns, such as users.
func Hit(string, func() []string) {}

// Off tells whether a test has taken the guard name away; here nobody can.
func Off(string, func() []string) bool { return false }
