package devstack

import (
	"runtime"
	"syscall"
)

// attributes makes a child end with this process, and run as another user when credential is set.
func attributes(credential *syscall.Credential) *syscall.SysProcAttr {
	// All children shut down orderly on SIGINT; Postgres calls it a fast shutdown.
	// In a process group of its own the child does not get a terminal's Ctrl-C: we
	// stop the children, in order.
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGINT, Credential: credential}
}

// lockThread keeps the goroutine on its thread: the kernel sends the death signal
// when the thread that started the child ends, not when the process does.
func lockThread() (unlock func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}
