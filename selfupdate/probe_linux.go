package selfupdate

import "golang.org/x/sys/unix"

// awaitExit waits for the end of a child and leaves it to be reaped. It reports
// whether it could.
func awaitExit(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err == nil
		}
	}
}
