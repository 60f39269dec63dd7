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

// runGroup is cmd.Run that leaves nothing of the group behind. Where that can be
// had, the group is killed while its leader is not reaped: then its number can't be
// another one's.
func runGroup(cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	kill := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if awaitExit(cmd.Process.Pid) {
		kill()
		return cmd.Wait()
	}
	defer kill()
	return cmd.Wait()
}

// endedOutside reports whether the process died by a signal that a program does
// not get by its own fault.
func endedOutside(exit *exec.ExitError) bool {
	ws, ok := exit.Sys().(syscall.WaitStatus)
	if !ok || !ws.Signaled() {
		return false
	}
	switch ws.Signal() {
	case syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP:
		return true
	}
	return false
}
