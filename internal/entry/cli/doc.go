// Package cli is the operator's tool: it migrates, makes API keys, and runs the
// whole system on a developer's machine (dev) or for one sale (demo).
package cli
