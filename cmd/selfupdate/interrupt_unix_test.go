//go:build unix

package main

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestInterrupted stops the tool in the middle of a download: it ends by itself,
// with the exit code of what may be tried again, and leaves nothing.
func TestInterrupted(t *testing.T) {
	// Whoever runs the tests by nohup has them ignore SIGHUP, which a child inherits
	// unless it is handled here.
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(handled)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			s := startServer()
			defer s.close()
			target := filepath.Join(t.TempDir(), "app")
			require.NoError(t, os.WriteFile(target, programs["v1"], 0o755))
			cmd := exec.Command("selfupdate", "apply", "--target", target, "--url", s.URL+"/files/slow/v2/app",
				"--version", "v2", "--unsigned-checksum", "a test", "--allow-http", "-o", "json")
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			require.NoError(t, cmd.Start())
			s.await()
			require.NoError(t, cmd.Process.Signal(sig))
			_ = cmd.Wait()

			assert.Equal(t, exitTemporary, cmd.ProcessState.ExitCode())
			assert.Contains(t, stderr.String(), "interrupted")
			assert.Contains(t, stderr.String(), target+" is unchanged")
			assert.Contains(t, stdout.String(), `"class": "temporary"`)
			got, err := os.ReadFile(target)
			require.NoError(t, err)
			assert.True(t, bytes.Equal(programs["v1"], got))
			assert.Empty(t, staged(t, filepath.Dir(target)))
		})
	}
}

// TestInterruptIgnored: a signal that the caller ignores (nohup) does not end it.
func TestInterruptIgnored(t *testing.T) {
	s := startServer()
	defer s.close()
	target := filepath.Join(t.TempDir(), "app")
	require.NoError(t, os.WriteFile(target, programs["v1"], 0o755))
	cmd := exec.Command("sh", "-c", "trap '' HUP; exec selfupdate \"$@\"", "sh", "apply", "--target", target,
		"--url", s.URL+"/files/waits/v2/app", "--digest", "sha256:"+hex256(programs["v2"]))
	require.NoError(t, cmd.Start())
	s.await()
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	s.proceed <- struct{}{}
	require.NoError(t, cmd.Wait())
	got, err := os.ReadFile(target)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(programs["v2"], got))
}

// staged lists what an update leaves when it can't clean up.
func staged(t *testing.T, dir string) (left []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		for _, p := range []string{".dl-", ".tmp-", ".selfupdate-"} {
			if strings.HasPrefix(d.Name(), p) {
				left = append(left, path)
			}
		}
		return err
	}))
	return left
}
