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
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// built is the controller of a version, built once for all tests.
func built(t *testing.T, version string) []byte {
	t.Helper()
	builds.Lock()
	defer builds.Unlock()
	if data, ok := builds.done[version]; ok {
		return data
	}
	file := filepath.Join(t.TempDir(), "firewall-controller")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-X main.version="+version, "-o", file, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	builds.done[version] = data
	return data
}

var builds = struct {
	sync.Mutex
	done map[string][]byte
}{done: map[string][]byte{}}

// machine is a directory with v1.0.0 in bin, which the controllers of a test work in.
func machine(t *testing.T) (dir, target string) {
	t.Helper()
	dir = t.TempDir()
	target = filepath.Join(dir, "bin", "firewall-controller")
	require.NoError(t, os.Mkdir(filepath.Dir(target), 0o755))
	data := built(t, "v1.0.0")
	syscall.ForkLock.RLock() // no child has it open for writing when it is executed: golang/go#22315
	defer syscall.ForkLock.RUnlock()
	require.NoError(t, os.WriteFile(target, data, 0o755))
	return dir, target
}

// serve has v1.0.1 served, and wanted by the spec in dir.
func serve(t *testing.T, dir string) {
	t.Helper()
	next := built(t, "v1.0.1")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".sha256") {
			fmt.Fprintf(w, "%x  bin/firewall-controller\n", sha256.Sum256(next))
			return
		}
		_, _ = w.Write(next)
	}))
	t.Cleanup(server.Close)
	spec := fmt.Sprintf("spec:\n  controllerVersion: v1.0.1\n  controllerURL: %s/v1.0.1/firewall-controller\n", server.URL)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "firewall.yaml"), []byte(spec), 0o644))
}

// TestExec: with --exec the same process turns into the new version.
func TestExec(t *testing.T) {
	dir, target := machine(t)
	serve(t, dir)
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
