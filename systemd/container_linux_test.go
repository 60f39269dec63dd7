package systemd_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// container is a systemd of its own, on this machine's files, of which it changes none.
type container struct {
	leader int // its process 1
	shared string
}

// shared is where the container sees what the test shares with it.
const shared = "/opt/selfupdate-test"

// boot starts a systemd that sees dir at shared. It ends with the test.
func boot(t *testing.T, dir string) *container {
	t.Helper()
	require.Zero(t, os.Geteuid(), "a systemd of its own needs root")
	nspawn, err := exec.LookPath("systemd-nspawn")
	require.NoError(t, err, "scripts/prerequisites.sh installs it")
	root := t.TempDir()
	require.NoError(t, unix.Mount("/", root, "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	console, err := os.Create(filepath.Join(t.TempDir(), "console"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = console.Close() })

	cmd := exec.Command(nspawn, "--boot", "--register=no", "--keep-unit", "--console=read-only", "--quiet",
		"--machine=selfupdate-"+strconv.Itoa(os.Getpid()), "--directory="+root, "--volatile=overlay",
		"--bind="+dir+":"+shared, "systemd.mask=console-getty.service", "systemd.mask=systemd-networkd-wait-online.service")
	cmd.Stdout, cmd.Stderr = console, console
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // also when the test is killed
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	c := &container{shared: dir}
	t.Cleanup(func() {
		if c.leader != 0 {
			_ = syscall.Kill(c.leader, syscall.SIGKILL)
		}
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
	})
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		select {
		case <-ended:
			t.Fatalf("systemd-nspawn ended: %s", tail(console.Name()))
		default:
		}
		c.leader = child(cmd.Process.Pid)
		if c.leader != 0 {
			if state, _ := c.run("systemctl", "is-system-running"); strings.Contains(state, "running") || strings.Contains(state, "degraded") {
				break
			}
		}
		require.Less(t, time.Since(began), time.Minute, "systemd does not come up: %s", tail(console.Name()))
	}
	return c
}

// child returns the first child of a process; 0 when it has none.
func child(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil || len(strings.Fields(string(b))) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(strings.Fields(string(b))[0])
	return n
}

// run runs a command in the container.
func (c *container) run(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	args = append([]string{"-t", strconv.Itoa(c.leader), "-m", "-u", "-i", "-n", "-p", "-C", "--"}, args...)
	out, err := exec.CommandContext(ctx, "nsenter", args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(args[8:], " "), err, out)
	}
	return strings.TrimSpace(string(out)), err
}

// unit writes a unit or a drop-in.
func (c *container) unit(name, text string) error {
	path := filepath.Join("/proc", strconv.Itoa(c.leader), "root/run/systemd/system", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

func tail(path string) string {
	b, _ := os.ReadFile(path)
	return string(b[max(0, len(b)-4000):])
}
