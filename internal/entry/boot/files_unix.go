//go:build unix

package boot

import "syscall"

// openFiles returns how many files this process may open. Go has raised it as far as it may.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return manyFiles
	}
	return uint64(limit.Cur) //nolint:unconvert // signed on some systems
}
