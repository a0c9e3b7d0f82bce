package devstack

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// unshared lets a command see its own mounts only.
func unshared(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
	}
	return cmd
}

// hide lays an empty folder over dir, for a process with mounts of its own.
func hide(dir string) error {
	err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
	if err == nil {
		err = syscall.Mount("none", dir, "tmpfs", 0, "")
	}
	if errors.Is(err, os.ErrNotExist) { // nothing to hide
		return nil
	}
	return err
}
