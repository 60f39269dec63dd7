//go:build unix

package selfupdate

import (
	"os/exec"
	"syscall"
)

var textBusy error = syscall.ETXTBSY

// isolate gives the probe a process group of its own; the context's end kills that.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// killGroup ends what the probe left running. The group's number can't have been
// given away: it lives as long as a process in it, and else there is none to kill.
func killGroup(cmd *exec.Cmd) {
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
}
