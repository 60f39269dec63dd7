//go:build unix

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// build makes the controller of a version.
func build(t *testing.T, version string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "firewall-controller")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-X main.version="+version, "-o", file, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return file
}

// TestExec: with --exec the same process turns into the new version.
func TestExec(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "bin", "firewall-controller")
	require.NoError(t, os.Mkdir(filepath.Dir(target), 0o755))
	require.NoError(t, os.Rename(build(t, "v1.0.0"), target))
	next, err := os.ReadFile(build(t, "v1.0.1"))
	require.NoError(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".sha256") {
			fmt.Fprintf(w, "%x  bin/firewall-controller\n", sha256.Sum256(next))
			return
		}
		_, _ = w.Write(next)
	}))
	defer server.Close()
	spec := fmt.Sprintf("spec:\n  controllerVersion: v1.0.1\n  controllerURL: %s/v1.0.1/firewall-controller\n", server.URL)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "firewall.yaml"), []byte(spec), 0o644))

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, target, "--exec", "--allow-http", "--interval", "1s")
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var log bytes.Buffer
	cmd.Stderr = &log
	require.NoError(t, cmd.Start())
	want := fmt.Sprintf("pid: %d\n", cmd.Process.Pid)
	assert.Eventually(t, func() bool {
		b, err := os.ReadFile(filepath.Join(dir, "status.yaml"))
		return err == nil && strings.Contains(string(b), "actualversion: v1.0.1\n") && strings.Contains(string(b), want)
	}, 30*time.Second, 20*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Wait(), log.String())
	assert.Contains(t, log.String(), "turning into the new program")
	assert.Contains(t, log.String(), "told to stop")
}
