//go:build !linux

package devstack

// roomyMemory returns "": only Linux has such a folder.
func roomyMemory() string { return "" }
