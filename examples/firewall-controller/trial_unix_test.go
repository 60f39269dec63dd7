//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// process is a controller that runs.
type process struct {
	*exec.Cmd
	t    *testing.T
	log  *output
	done context.CancelFunc
}

// output is what a process has written so far.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// start starts what is at the target, with a trial of three seconds.
func start(t *testing.T, target string, env ...string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	cmd := exec.CommandContext(ctx, target, "--allow-http", "--interval", "200ms", "--soak", "0s", "--trial-deadline", "3s")
	cmd.Dir = filepath.Dir(filepath.Dir(target))
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = time.Second
	p := &process{Cmd: cmd, t: t, log: &output{}, done: cancel}
	cmd.Stderr = p.log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was waited for, or has just been killed
	})
	return p
}

// ends waits for the end and returns the exit code.
func (p *process) ends() int {
	p.t.Helper()
	defer p.done()
	var exit *exec.ExitError
	if err := p.Wait(); !errors.As(err, &exit) {
		require.NoError(p.t, err, p.log.String())
	}
	return p.ProcessState.ExitCode()
}

// says waits until the log has that text.
func (p *process) says(text string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return strings.Contains(p.log.String(), text) }, 30*time.Second, 10*time.Millisecond, "%q", text)
}

func status(t *testing.T, target string) selfupdate.Status {
	t.Helper()
	st, err := selfupdate.ReadStatus(target, nil)
	require.NoError(t, err)
	return st
}

// onTrial is a firewall whose program has just become v1.0.1, on trial, and whose API
// is down from then on.
func onTrial(t *testing.T) (dir, target string) {
	t.Helper()
	dir, target = machine(t)
	serve(t, dir)
	require.Zero(t, start(t, target).ends())
	require.NotNil(t, status(t, target).Trial)
	require.NoError(t, os.Remove(filepath.Join(dir, "firewall.yaml")))
	return dir, target
}

// Where no unit runs the helper, the program does it all itself: it stays while its API
// is down, leaves with 3 at the deadline, is started once more, and makes way.
func TestTrialWithoutHelper(t *testing.T) {
	t.Parallel()
	_, target := onTrial(t)
	p := start(t, target)
	assert.Equal(t, exitExpired, p.ends())
	assert.Contains(t, p.log.String(), "event=SpecUnread")
	p = start(t, target)
	assert.Zero(t, p.ends())
	assert.Contains(t, p.log.String(), "this is not the version to run")
	st := status(t, target)
	assert.Equal(t, "stable", st.Phase)
	assert.Equal(t, "v1.0.0", st.Current.Version)
	assert.Equal(t, "pending", st.Rejected[0].Verdict)
	p = start(t, target)
	p.says("starting version=v1.0.0")
	p.says("v1.0.0 is back from v1.0.1: unhealthy, pending (not confirmed within 3s of its start)")
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	assert.Zero(t, p.ends())
}

// A stop by SIGTERM says nothing about a version: the start is taken back.
func TestTrialStopped(t *testing.T) {
	t.Parallel()
	_, target := onTrial(t)
	for range 2 {
		p := start(t, target)
		p.says("starting version=v1.0.1")
		assert.Equal(t, 1, status(t, target).Trial.Started)
		require.NoError(t, p.Process.Signal(syscall.SIGTERM))
		assert.Zero(t, p.ends())
		assert.Zero(t, status(t, target).Trial.Started)
	}
	p := start(t, target) // the control: this end counts
	p.says("starting version=v1.0.1")
	require.NoError(t, p.Process.Kill())
	p.ends()
	assert.Equal(t, 1, status(t, target).Trial.Started)
}

// A controller that hangs for ever is ended all the same. The spec is a pipe that
// nobody writes to: opening it never returns.
func TestTrialHangs(t *testing.T) {
	t.Parallel()
	dir, target := onTrial(t)
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "firewall.yaml"), 0o600))
	p := start(t, target)
	assert.Equal(t, exitExpired, p.ends())
	assert.Contains(t, p.log.String(), "the trial is over")
	assert.NotContains(t, p.log.String(), "starting version", "the control: it hung before that")
}

// Systemd is told READY although the API is down, that the loop is alive, and STOPPING.
func TestNotify(t *testing.T) {
	t.Parallel()
	dir, target := machine(t)
	socket := filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	require.NoError(t, err)
	defer conn.Close()
	receive := func() string {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
		var buf [256]byte
		n, err := conn.Read(buf[:])
		require.NoError(t, err)
		return string(buf[:n])
	}
	p := start(t, target, "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=200000")
	assert.Equal(t, "READY=1", receive())
	for range 3 {
		assert.Equal(t, "WATCHDOG=1", receive())
	}
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	last := ""
	for last = receive(); last == "WATCHDOG=1"; last = receive() {
	}
	assert.Equal(t, "STOPPING=1", last)
	assert.Zero(t, p.ends())
}
