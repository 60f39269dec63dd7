package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// signedRelease is a directory with v2 of app as its publisher leaves it, signed
// with both tools, and the keys of somebody else.
func signedRelease(t *testing.T) (dir, url string) {
	t.Helper()
	dir = t.TempDir()
	v2 := programs["v2"]
	for name, content := range map[string]string{
		"app":           string(v2),
		"checksums.txt": "# version: v2\n" + hex256(v2) + "  app\n",
		"unbound.txt":   hex256(v2) + "  app\n",
		"alone.sha256":  "# version: v2\n" + hex256(v2) + "\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", `
		minisign -G -W -p mini.pub -s mini.key
		minisign -G -W -p other.pub -s other.key
		for f in checksums.txt unbound.txt alone.sha256; do minisign -S -s mini.key -m $f; done
		openssl ecparam -name prime256v1 -genkey -noout -out ec.key
		openssl pkey -in ec.key -pubout -out ec.pub
		openssl dgst -sha256 -sign ec.key checksums.txt | openssl base64 -out checksums.txt.sig
		mkdir unsigned && cp checksums.txt unsigned/`)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	srv := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(srv.Close)
	return dir, srv.URL
}

func selfupdateTool(t *testing.T, args ...string) (code int, output string) {
	t.Helper()
	var out bytes.Buffer
	code = run(t.Context(), args, strings.NewReader(""), &out, &out)
	return code, out.String()
}

func TestApplyKey(t *testing.T) {
	dir, url := signedRelease(t)
	key := func(name string) string { return filepath.Join(dir, name) }
	for _, tt := range []struct {
		name, version string
		args          []string
		code          int
		says          string
	}{
		{"minisign", "v2", []string{"--key", key("mini.pub")}, 0, "trust: signed by minisign "},
		{"ECDSA", "v2", []string{"--key", key("ec.pub")}, 0, "trust: signed by ecdsa-p256 "},
		{"one of two", "v2", []string{"--key", key("other.pub"), "--key", key("ec.pub")}, 0, "as version v2"},
		{"another's", "v2", []string{"--key", key("other.pub")}, 3, "signed with another key"},
		{"another's, and none by the other tool", "v2", []string{"--key", key("other.pub"), "--key", key("ec.pub"), "--sums-url", url + "/unbound.txt"}, 3, "do not install this"},
		{"another version", "v3", []string{"--key", key("mini.pub")}, 3, "old release"},
		{"a digest alone", "v2", []string{"--key", key("mini.pub"), "--sums-url", url + "/alone.sha256"}, 3, "signed for no asset"},
		{"no version", "v2", []string{"--key", key("mini.pub"), "--sums-url", url + "/unbound.txt"}, 3, "--allow-unbound-version"},
		{"no version, allowed", "v2", []string{"--key", key("mini.pub"), "--sums-url", url + "/unbound.txt", "--allow-unbound-version"}, 0, "for any version"},
		{"no signature", "v2", []string{"--key", key("mini.pub"), "--sums-url", url + "/unsigned/checksums.txt"}, 1, "checksums.txt.minisig"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			target := filepath.Join(t.TempDir(), "app")
			require.NoError(t, os.WriteFile(target, programs["v1"], 0o755))
			code, out := selfupdateTool(t, append([]string{"apply", "--target", target, "--url", url + "/app", "--version", tt.version}, tt.args...)...)
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

func TestVerifyKey(t *testing.T) {
	dir, _ := signedRelease(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, tt := range []struct {
		name, sums string
		args       []string
		code       int
		says       string
	}{
		{"minisign", "checksums.txt", []string{"--key", in("mini.pub")}, 0, `as version "v2"`},
		{"ECDSA", "checksums.txt", []string{"--key", in("ec.pub"), "--version", "v2"}, 0, "signed by ecdsa-p256 "},
		{"one of two", "checksums.txt", []string{"--key", in("other.pub"), "--key", in("ec.pub")}, 0, "signed by ecdsa-p256 "},
		{"no version", "unbound.txt", []string{"--key", in("mini.pub")}, 0, "it states no version"},
		{"no version, one wanted", "unbound.txt", []string{"--key", in("mini.pub"), "--version", "v2"}, 3, "does not state a version"},
		{"another version", "checksums.txt", []string{"--key", in("mini.pub"), "--version", "v3"}, 3, "version mismatch"},
		{"a digest alone, signed", "alone.sha256", []string{"--key", in("mini.pub")}, 3, "signed for no asset"},
		{"a digest alone, signed, named", "alone.sha256", []string{"--key", in("mini.pub"), "--name", "app"}, 3, "signed for no asset"},
		{"a digest alone", "alone.sha256", []string{"--name", "app"}, 0, "ok"},
		{"another's key", "checksums.txt", []string{"--key", in("other.pub")}, 3, "signed with another key"},
		{"no signature", "unsigned/checksums.txt", []string{"--key", in("mini.pub")}, 3, "signature does not verify"},
		{"no key", "checksums.txt", []string{"--key", in("checksums.txt")}, 2, "unusable public key"},
		{"a digest", "", []string{"--key", in("mini.pub"), "--digest", "sha256:" + hex256(programs["v2"])}, 2, "--key is for --sums"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := append([]string{"verify"}, tt.args...)
			if tt.sums != "" {
				args = append(args, "--sums", in(tt.sums))
			}
			code, out := selfupdateTool(t, append(args, in("app"))...)
			assert.Equal(t, tt.code, code, "%s", out)
			assert.Contains(t, out, tt.says)
			assert.NotContains(t, out, "URL", "nothing is fetched")
		})
	}
}
