// Package internal has no code: only the checks of the whole source tree.
package internal
