package devstack

import (
	"os"
	"path/filepath"
)

// place returns where a throw-away folder is made. Without fsync a stack need not
// survive anything, so it lies in memory if there is room: tests make and drop
// hundreds of databases, and writing those to a disk took a third of their time.
// TMPDIR chooses the place.
func place(unsafe bool) string {
	if memory := roomyMemory(); unsafe && memory != "" && os.Getenv("TMPDIR") == "" {
		return memory
	}
	return os.TempDir()
}

// throwaways returns the throw-away folders of all runs, wherever they lie.
func throwaways() (dirs []string) {
	places := []string{os.TempDir()}
	if os.Getenv("TMPDIR") == "" {
		places = append(places, memoryFolder)
	}
	for _, place := range places {
		found, _ := filepath.Glob(filepath.Join(place, throwawayPattern))
		dirs = append(dirs, found...)
	}
	return dirs
}

// memoryFolder is where Linux mounts a file system in memory for everybody.
const memoryFolder = "/dev/shm"
