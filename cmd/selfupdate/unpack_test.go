package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestApplyUnpack installs out of archives as the usual tools make them.
func TestApplyUnpack(t *testing.T) {
	dir := t.TempDir()
	for name, version := range map[string]string{"app": "v2", "tool": "v1"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), programs[version], 0o755))
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", `
		echo readme >README
		mkdir app-v2 && cp app README app-v2/
		tar czf app.tar.gz app-v2
		tar c app-v2 | zstd -q -o app.tar.zst
		zip -qr app.zip app-v2
		gzip -k app
		cp app renamed-v2 && tar czf renamed.tar.gz renamed-v2 tool
		sha256sum *.gz *.zip *.zst >SHA256SUMS`)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	srv := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(srv.Close)

	for i, tt := range []struct {
		asset string
		args  []string
		code  int
		says  string
	}{
		{"app.tar.gz", []string{"--unpack"}, 0, "updated"},
		{"app.tar.zst", []string{"--unpack"}, 0, "updated"},
		{"app.zip", []string{"--unpack"}, 0, "updated"},
		{"app.gz", []string{"--unpack"}, 0, "updated"},
		{"app.zip", []string{"--unpack", "--entry", "app-v2/app"}, 0, "updated"},
		{"renamed.tar.gz", []string{"--unpack", "--entry", "renamed-v2"}, 0, "updated"},
		{"renamed.tar.gz", []string{"--unpack"}, 3, `no file "app"`},
		{"app.zip", []string{"--unpack", "--entry", "app-v2/README"}, 3, "not a program"},
		{"app.tar.gz", nil, 3, "or with --unpack an archive"},
		{"app", []string{"--unpack"}, 3, "neither gzip nor zstd nor zip"},
		{"app.zip", []string{"--entry", "app"}, 2, "--entry NAME is for --unpack"},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			target := filepath.Join(t.TempDir(), "app")
			require.NoError(t, os.WriteFile(target, programs["v1"], 0o755))
			args := append([]string{"apply", "--target", target, "--url", srv.URL + "/" + tt.asset, "--allow-http", "--unsigned-checksum", "a test"}, tt.args...)
			if tt.asset == "app" {
				args = append(args[:len(args):len(args)], "--digest", "sha256:"+hex256(programs["v2"]))
				args = append(args[:6:6], args[8:]...) // the digest instead of a checksum file
			}
			code, out := selfupdateTool(t, args...)
			assert.Equal(t, tt.code, code, "%s", out)
			assert.Contains(t, out, tt.says)
			got, err := os.ReadFile(target)
			require.NoError(t, err)
			want := "v1"
			if tt.code == 0 {
				want = "v2"
			}
			assert.Equal(t, hex256(programs[want]), hex256(got))
		})
	}
}

// TestApplyAnotherEntry: a wrong --entry is no more than that. What it installed is
// not what the archive stands for, nor is a rejection of it.
func TestApplyAnotherEntry(t *testing.T) {
	dir := t.TempDir()
	for name, version := range map[string]string{"app": "v2", "tool": "v3"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), programs[version], 0o755))
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", `tar czf both.tar.gz app tool; sha256sum both.tar.gz >SHA256SUMS`)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	srv := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(srv.Close)
	target := filepath.Join(t.TempDir(), "app")
	require.NoError(t, os.WriteFile(target, programs["v1"], 0o755))
	is := func(version, says string, args ...string) {
		t.Helper()
		code, out := selfupdateTool(t, append([]string{args[0], "--target", target}, args[1:]...)...)
		assert.Zero(t, code, "%s", out)
		assert.Contains(t, out, says)
		got, err := os.ReadFile(target)
		require.NoError(t, err)
		assert.Equal(t, hex256(programs[version]), hex256(got), "%v: %s", args, out)
	}
	apply := []string{"apply", "--url", srv.URL + "/both.tar.gz", "--allow-http", "--unsigned-checksum", "a test", "--version", "v2", "--unpack"}
	with := func(args ...string) []string { return append(apply[:len(apply):len(apply)], args...) }

	for range 3 { // held back at last
		code, _ := selfupdateTool(t, with("--entry", "no", "--target", target)...)
		assert.NotZero(t, code)
	}
	is("v3", "updated", with("--entry", "tool")...)
	is("v3", "nothing to do", with("--entry", "tool")...)
	is("v2", "updated", apply...)
	is("v2", "nothing to do", apply...)
	is("v3", "updated", with("--entry", "tool")...)
	is("v2", "", "rollback", "--reason", "the wrong one")
	is("v2", "nothing to do", apply...) // not rejected with the other one
	code, text := selfupdateTool(t, with("--entry", "tool", "--target", target)...)
	assert.Equal(t, 3, code, "%s", text)
	is("v1", "", "rollback", "--reason", "neither")
	is("v1", "", "clear", "--all")
	is("v3", "updated", with("--entry", "tool")...)
	is("v2", "updated", apply...)
}
