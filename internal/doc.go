// Package internal has no code. It only holds the checks of the whole source tree.
package internal
