package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/checksum"
)

// checksumCase is one of checksum's testdata/cases/index.json.
type checksumCase struct {
	File, Asset string
	Expect      map[string]string // sha256, sha512, or error
}

const casesDir = "../../checksum/testdata/cases"

// verifyCase runs verify in dir and returns its exit code, with all that it wrote.
func verifyCase(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	var b bytes.Buffer
	code = run(t.Context(), append([]string{"verify"}, args...), nil, &b, &b)
	return code, b.String()
}

// TestVerifyCases: every shape of a checksum file in the wild, with the right
// payload and with another one.
func TestVerifyCases(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(casesDir, "index.json"))
	require.NoError(t, err)
	var cases []checksumCase
	require.NoError(t, json.Unmarshal(data, &cases))
	require.NotEmpty(t, cases)
	for _, tt := range cases {
		t.Run(tt.File, func(t *testing.T) {
			dir := t.TempDir()
			right, wrong := filepath.Join(dir, tt.Asset), filepath.Join(dir, "wrong")
			require.NoError(t, os.WriteFile(right, []byte("payload of "+tt.Asset+"\n"), 0o600))
			require.NoError(t, os.WriteFile(wrong, []byte("payload of another\n"), 0o600))
			for _, sums := range asPublished(t, dir, tt) {
				args := []string{"--sums", sums}
				if filepath.Dir(sums) != dir || filepath.Ext(sums) == ".txt" {
					args = append(args, "--name", tt.Asset)
				}
				code, out := verifyCase(t, append(args, right)...)
				if tt.Expect["error"] != "" {
					assert.Equal(t, exitRefused, code, out)
					assert.Contains(t, out, "no usable checksum")
					assert.Contains(t, out, tt.Asset)
					assert.NotContains(t, out, "<html")
					assert.LessOrEqual(t, strings.Count(out, "\n"), 2, out)
					continue
				}
				assert.Equal(t, exitDone, code, out)
				want := "sha256:" + tt.Expect["sha256"]
				if tt.Expect["sha256"] == "" {
					want = "sha512:" + tt.Expect["sha512"]
				}
				assert.Contains(t, out, want)

				code, out = verifyCase(t, "--sums", sums, "--name", tt.Asset, wrong)
				assert.Equal(t, exitRefused, code, out)
				assert.Contains(t, out, "digest mismatch")
			}
		})
	}
}

// asPublished returns the case's file as it is, and for a sidecar also a copy that
// stands beside its asset.
func asPublished(t *testing.T, dir string, tt checksumCase) []string {
	t.Helper()
	sums := []string{filepath.Join(casesDir, tt.File)}
	if ext := filepath.Ext(tt.File); ext != ".txt" {
		data, err := os.ReadFile(sums[0])
		require.NoError(t, err)
		beside := filepath.Join(dir, tt.Asset+ext)
		require.NoError(t, os.WriteFile(beside, data, 0o600))
		sums = append(sums, beside)
	}
	return sums
}

// TestVerifySidecar: a bare digest counts where the file's own name or --name says
// which asset it is for, and nowhere else.
func TestVerifySidecar(t *testing.T) {
	dir := t.TempDir()
	payload := filepath.Join(dir, "app")
	require.NoError(t, os.WriteFile(payload, []byte("app"), 0o600))
	bare := hex256([]byte("app")) + "\n"
	for _, tt := range []struct {
		file  string
		named bool
		want  int
	}{
		{"app.sha256", false, exitDone},
		{"app.sha256sum", false, exitDone},
		{"app.sha512sum", false, exitDone}, // the length tells the algorithm
		{"app.SHA256", false, exitDone},
		{"app.SHA256", true, exitDone},
		{"any.sha256", true, exitDone},
		{"any.sha256", false, exitRefused},
		{".sha256", false, exitRefused},
		{"app", false, exitRefused},
		{"sums.txt", true, exitRefused},
		{"app.txt", false, exitRefused},
		{"sha256", true, exitRefused},
	} {
		sums := filepath.Join(t.TempDir(), tt.file)
		require.NoError(t, os.WriteFile(sums, []byte(bare), 0o600))
		args := []string{"--sums", sums, payload}
		if tt.named {
			args = append(args, "--name", "app")
		}
		code, out := verifyCase(t, args...)
		assert.Equal(t, tt.want, code, "%s: %s", tt.file, out)
	}
	for file, want := range map[string]int{"sha256:" + bare: exitDone, "sha256:" + bare + "sha256:" + bare: exitRefused} {
		sums := filepath.Join(t.TempDir(), "digest.txt")
		require.NoError(t, os.WriteFile(sums, []byte(file), 0o600))
		code, out := verifyCase(t, "--sums", sums, payload)
		assert.Equal(t, want, code, out)
	}
	over := filepath.Join(dir, "app.sha256")
	require.NoError(t, os.WriteFile(over, bytes.Repeat([]byte("#\n"), checksum.MaxSize), 0o600))
	code, out := verifyCase(t, "--sums", over, payload)
	assert.Equal(t, exitRefused, code)
	assert.Contains(t, out, "over 1 MiB")
}

// TestVerifyMemory: the payload is never in memory as a whole.
func TestVerifyMemory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Truncate(file, 256<<20))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	code, out := verifyCase(t, "--digest", "sha256:"+strings.Repeat("0", 64), file)
	runtime.ReadMemStats(&after)
	assert.Equal(t, exitRefused, code, out)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4<<20), "bytes allocated in all")
}
