package devstack

import (
	"runtime"
	"syscall"
)

// attributes makes a child die with this process, and run as another user when credential is set.
func attributes(credential *syscall.Credential) *syscall.SysProcAttr {
	// SIGINT is an orderly end to all of them: a fast shutdown to Postgres.
	// A group of its own keeps a terminal's Ctrl-C from reaching the child: we stop it, in order.
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGINT, Credential: credential}
}

// lockThread keeps the goroutine on its thread: the kernel sends the death
// signal when the starting thread ends, not the process.
func lockThread() (unlock func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}
