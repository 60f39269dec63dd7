package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// openTerminal returns both ends of a pseudo-terminal: pts(4).
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	t.Cleanup(func() { _ = master.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = slave.Close() })
	return master, slave
}

// onTerminal runs the tool with a terminal for standard error only.
func onTerminal(t *testing.T, args ...string) (stdout, terminal string) {
	t.Helper()
	master, slave := openTerminal(t)
	var out bytes.Buffer
	cmd := exec.Command("selfupdate", args...)
	cmd.Stdout, cmd.Stderr = &out, slave
	require.NoError(t, cmd.Start())
	require.NoError(t, slave.Close())
	seen, _ := io.ReadAll(master) // ends with EIO when the last slave is closed
	require.NoError(t, cmd.Wait())
	return out.String(), string(seen)
}

func TestProgressOnTerminal(t *testing.T) {
	s := startServer()
	defer s.close()
	for _, tt := range []struct {
		name  string
		flags []string
		shown bool
	}{
		{"shown", nil, true},
		{"shown beside JSON", []string{"-o", "json"}, true},
		{"not when quiet", []string{"--quiet"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			target := filepath.Join(t.TempDir(), "app")
			require.NoError(t, os.WriteFile(target, programs["v1"], 0o755))
			stdout, terminal := onTerminal(t, append([]string{"apply", "--target", target, "--url", s.URL + "/files/steady/v2/app",
				"--digest", "sha256:" + hex256(programs["v2"])}, tt.flags...)...)
			assert.NotContains(t, stdout, "\r")
			if !tt.shown {
				assert.Empty(t, terminal)
				return
			}
			total := size(int64(len(programs["v2"])))
			assert.Contains(t, terminal, total+" of "+total+", 100 %, ")
			assert.Regexp(t, `B/s in [0-9.]+m?s *\r\n$`, terminal)
			assert.Less(t, strings.Count(terminal, "\r"), 12, "at most ten times a second, for half a second")
			assert.Greater(t, strings.Count(terminal, "\r"), 3)
		})
	}
}

// TestVerifyProgress: only what takes a while is shown.
func TestVerifyProgress(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, size := range []int64{1 << 20, bigFile} {
		require.NoError(t, os.Truncate(file, size))
		want := hex256(make([]byte, size))
		_, terminal := onTerminal(t, "verify", "--digest", "sha256:"+want, file)
		assert.Equal(t, size >= bigFile, terminal != "", terminal)
	}
}
