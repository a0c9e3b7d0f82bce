package e2e

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// terminate asks a process for an orderly end.
const terminate = syscall.SIGTERM

// processState returns the state letter of a process: T is stopped.
func processState(pid int) string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(string(data), ") ") // the name can have blanks
	state, _, _ := strings.Cut(after, " ")
	return state
}
