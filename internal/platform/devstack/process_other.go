//go:build unix && !linux

package devstack

import "syscall"

// attributes runs a child as another user when credential is set. Elsewhere than
// on Linux children of a killed process stay until the next start finds them.
func attributes(credential *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: credential}
}

func lockThread() (unlock func()) { return func() {} }
