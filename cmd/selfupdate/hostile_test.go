package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// marker is in what a hostile server says, wherever it can.
const marker = "\x1b[31mMARK\x07\x00\xff\xfe\u202e\nMARK"

// minisignKey and ecdsaKey are two keys that sign nothing here.
const (
	minisignKey = "untrusted comment: k\nRWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3\n"
	ecdsaKey    = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEaxfR8uEsQkf4vOblY6RA8ncDfYEt\n6zOg9KE5RdiYwpZP40Li/hp/m47n60p8D54WK84zV2sxXs7LtkBoN79R9Q==\n-----END PUBLIC KEY-----\n"
)

// TestHostileServerOutput: whatever a server says, what a person or a log gets to
// see is a few lines of plain text. What comes of each is internal/hostile's.
func TestHostileServerOutput(t *testing.T) {
	digest := hex256([]byte("app"))
	list := func(n int, name func(int) string) string {
		var assets []map[string]any
		for i := range n {
			assets = append(assets, map[string]any{"id": i + 1, "name": name(i), "state": "uploaded", "size": 3, "digest": marker, "browser_download_url": "http://" + marker})
		}
		data, err := json.Marshal(map[string]any{"id": 7, "tag_name": "v1.0.0", "published_at": "2020-01-01T00:00:00Z", "assets": assets})
		require.NoError(t, err)
		return string(data)
	}
	long := strings.Repeat("a", 100000)
	fromAPI := []string{"--github", "acme/app", "--tag", "v1.0.0", "--unsigned-checksum", "x"}
	fromURL := []string{"--unsigned-checksum", "x", "--url"}
	for _, tt := range []struct {
		name string
		args []string
		path string // prefix of what is answered so
		do   http.HandlerFunc
	}{
		{"HTML", fromURL, "/", says(200, "<html>"+marker)},
		{"status 403", fromURL, "/", says(403, marker)},
		{"limit", fromURL, "/", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "86400")
			says(429, marker)(w, r)
		}},
		{"a name in the checksum file", fromURL, "/app.sha256", says(200, digest+"  "+marker+"\n")},
		{"a long name in the checksum file", fromURL, "/app.sha256", says(200, digest+"  "+long+"\n")},
		{"another digest", fromURL, "/app.sha256", says(200, digest+"  app\n")},
		{"redirect to a long address", fromURL, "/app.sha256", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/gone/%1b%5b31mMARK%00"+long)
			w.WriteHeader(http.StatusFound)
		}},
		{"redirect to file:", fromURL, "/app.sha256", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "file:///\xff\xfe"+long)
			w.WriteHeader(http.StatusFound)
		}},
		{"two signatures", append([]string{"--version", "v1", "--key", "minisign.pub", "--key", "cosign.pub"}, "--url"), "/app.sha256.", says(200, marker)},
		{"no signature", append([]string{"--version", "v1", "--key", "minisign.pub", "--key", "cosign.pub"}, "--url"), "/app.sha256.", says(404, marker)},
		{"the API's message", fromAPI, "/repos/", says(422, `{"message":"\u001b[31mMARK","errors":[{"message":"\u0007"}]}`)},
		{"the API's garbage", fromAPI, "/repos/", says(200, marker)},
		{"the API's tag", fromAPI, "/repos/", says(200, `{"id":7,"tag_name":"\u001b[31mMARK"}`)},
		{"names of assets", fromAPI, "/repos/", says(200, list(5, func(i int) string { return fmt.Sprintf("app-%d%s", i, marker) }))},
		{"long names of assets", fromAPI, "/repos/", says(200, list(25, func(i int) string { return fmt.Sprintf("app-%d-%s", i, long[:240]) }))},
		{"long names, none of them asked for", append(fromAPI, "--asset", "other"), "/repos/", says(200, list(25, func(i int) string { return fmt.Sprintf("é%d-%s", i, long[:240]) }))},
		{"two of one name", append(fromAPI, "--asset", "twice"), "/repos/", says(200, list(2, func(int) string { return "twice" }))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Chdir(dir)
			require.NoError(t, os.WriteFile("app", []byte("old"), 0o755))
			require.NoError(t, os.WriteFile("minisign.pub", []byte(minisignKey), 0o600))
			require.NoError(t, os.WriteFile("cosign.pub", []byte(ecdsaKey), 0o600))
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case strings.HasPrefix(r.URL.Path, tt.path) && !strings.HasPrefix(r.URL.Path, "/gone/"):
					tt.do(w, r)
				case path.Base(r.URL.Path) == "app":
					says(200, "new")(w, r)
				case path.Base(r.URL.Path) == "app.sha256":
					says(200, hex256([]byte("new"))+"  app\n")(w, r)
				default:
					says(404, marker)(w, r)
				}
			}))
			t.Cleanup(srv.Close)
			args := append([]string{"apply", "--target", filepath.Join(dir, "app"), "--allow-http", "--allow-any-format", "--allow-other-program"}, tt.args...)
			if args[len(args)-1] == "--url" {
				args = append(args, srv.URL+"/app")
			} else {
				args = append(args, "--api-url", srv.URL)
			}
			for _, more := range [][]string{nil, {"-o", "json"}, {"--dry-run"}, {"--verbose"}} {
				var stdout, stderr bytes.Buffer
				code := run(t.Context(), append(args, more...), nil, &stdout, &stderr)
				assert.NotContains(t, []int{exitDone, exitUsage}, code, "%s", &stderr)
				for _, out := range []string{stdout.String(), stderr.String()} {
					if !slices.Contains(more, "--verbose") {
						assert.Less(t, len(out), 3<<10, "%.300s", out)
					}
					for line := range strings.Lines(out) {
						line = strings.TrimSuffix(line, "\n")
						assert.Less(t, len(line), 3<<10)
						bad := strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError })
						assert.Negative(t, bad, "%q", line)
					}
				}
				if more == nil {
					assert.LessOrEqual(t, strings.Count(stderr.String(), "\n"), 2, "%s", &stderr)
				}
				data, err := os.ReadFile("app")
				require.NoError(t, err)
				assert.Equal(t, "old", string(data))
			}
		})
	}
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}
