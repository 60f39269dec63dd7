package signature

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

// tool runs one of the real tools in dir; each is in scripts/prerequisites.sh.
func tool(t testing.TB, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %s: %s", name, strings.Join(args, " "), out)
}

func write(t testing.TB, dir, name, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
}

func read(t testing.TB, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	return string(data)
}

// signer signs with one of the tools, as a publisher does.
type signer struct {
	dir  string
	kind string // minisign or openssl
	pub  string // the public key as its file has it
}

// newSigner makes a key without a password.
func newSigner(t testing.TB, kind string) signer {
	t.Helper()
	s := signer{dir: t.TempDir(), kind: kind}
	if kind == "minisign" {
		tool(t, s.dir, "minisign", "-G", "-W", "-p", "pub", "-s", "key")
	} else {
		tool(t, s.dir, "openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "key")
		tool(t, s.dir, "openssl", "pkey", "-in", "key", "-pubout", "-out", "pub")
	}
	s.pub = read(t, s.dir, "pub")
	return s
}

// sign returns the signature file of content. extra goes to the tool.
func (s signer) sign(t testing.TB, content string, extra ...string) string {
	t.Helper()
	write(t, s.dir, "file", content)
	if s.kind == "minisign" {
		tool(t, s.dir, "minisign", append([]string{"-S", "-s", "key", "-m", "file", "-x", "sig"}, extra...)...)
	} else {
		tool(t, s.dir, "openssl", "dgst", "-sha256", "-sign", "key", "-out", "raw", "file")
		tool(t, s.dir, "openssl", append([]string{"base64", "-in", "raw", "-out", "sig"}, extra...)...)
	}
	return read(t, s.dir, "sig")
}

func (s signer) verifier(t testing.TB) selfupdate.Verifier {
	t.Helper()
	v, err := Minisign(s.pub)
	if s.kind != "minisign" {
		v, err = ECDSA([]byte(s.pub))
	}
	require.NoError(t, err)
	return v
}

// verify asks a verifier about the checksum file of the asset app, beside which
// are the signatures.
func verify(t testing.TB, v selfupdate.Verifier, sums string, signatures map[string]string) (selfupdate.Statement, error) {
	t.Helper()
	return v.Verify(t.Context(), selfupdate.Message{
		Asset: "app", Version: "v2", SumsName: "checksums.txt", Sums: []byte(sums),
		Listed: func() (checksum.Digest, error) {
			list, err := checksum.Parse([]byte(sums))
			if err != nil {
				return checksum.Digest{}, err
			}
			return list.Lookup("app")
		},
		Signature: func(_ context.Context, name string) ([]byte, error) {
			if text, ok := signatures[name]; ok {
				return []byte(text), nil
			}
			return nil, fmt.Errorf("%w: %q", selfupdate.ErrNotFound, name)
		},
	})
}

func digestOf(alg checksum.Algorithm, content string) checksum.Digest {
	h := alg.New()
	h.Write([]byte(content))
	return checksum.Of(alg, h)
}

// plain fails the test when an error's text has what a terminal would act on, or
// one of the secrets that the hostile input is made of.
func plain(t testing.TB, err error, secrets ...string) {
	t.Helper()
	for _, r := range err.Error() {
		require.True(t, r >= 0x20 && r < 0x7f, "%q", err)
	}
	for _, s := range secrets {
		require.NotContains(t, err.Error(), s)
	}
}
