package devstack

import (
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

const (
	// memoryRoom is how much must be free in memoryFolder: ten times what the tests
	// use on two processors.
	memoryRoom = 2 << 30
	// memorySpare is how much memory must be available: the folder's size is no promise
	// that there is so much.
	memorySpare = 4 << 30
)

// roomyMemory returns a folder in memory that has room for the data of tests, or "".
func roomyMemory() string {
	var at unix.Statfs_t
	if err := unix.Statfs(memoryFolder, &at); err != nil || at.Type != unix.TMPFS_MAGIC || at.Bavail*uint64(at.Bsize) < memoryRoom { //nolint:gosec // a block has a size
		return ""
	}
	system, err := procfs.NewDefaultFS()
	if err != nil {
		return ""
	}
	memory, err := system.Meminfo()
	if err != nil || memory.MemAvailableBytes == nil || *memory.MemAvailableBytes < memorySpare {
		return ""
	}
	return memoryFolder
}
