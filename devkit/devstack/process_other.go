//go:build unix && !linux

package devstack

import "syscall"

// attributes makes a child run as another user when credential is set. On systems
// other than Linux, children of a killed process run on until the next start stops
// them.
func attributes(credential *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: credential}
}

func lockThread() (unlock func()) { return func() {} }
