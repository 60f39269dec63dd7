package selfupdate

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// keyVerifier is a Verifier as an importer would write one: an Ed25519 signature
// beside the checksum file.
type keyVerifier struct {
	key     ed25519.PublicKey
	version string // what the signature states
}

func (v keyVerifier) Verify(ctx context.Context, m Message) (Statement, error) {
	sig, err := m.Signature(ctx, m.SumsName+".sig")
	if err != nil {
		return Statement{}, err
	}
	if !ed25519.Verify(v.key, m.Sums, sig) {
		return Statement{}, errors.New("does not verify")
	}
	return Statement{Key: "test key", Version: v.version}, nil
}

func TestSigned(t *testing.T) {
	pub, priv, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	otherPub, _, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	good := keyVerifier{key: pub, version: "v2"}
	for _, tt := range []struct {
		name  string
		trust Trust
		sign  func(sums []byte) []byte // nil: no signature
		extra string                   // in the checksum file
		want  error
	}{
		{"good", Signed(good), nil, "", nil},
		{"one of two keys", Signed(keyVerifier{key: otherPub}, good), nil, "", nil},
		{"wrong key", Signed(keyVerifier{key: otherPub}), nil, "", ErrSignature},
		{"signature of other bytes", Signed(good), func([]byte) []byte { return ed25519.Sign(priv, []byte("other")) }, "", ErrSignature},
		{"no signature", Signed(good), func([]byte) []byte { return nil }, "", ErrNotFound},
		{"states another version", Signed(keyVerifier{key: pub, version: "v1"}), nil, "", ErrVersionMismatch},
		{"states none", Signed(keyVerifier{key: pub}), nil, "", ErrVersionNotBound},
		{"states none, allowed", Signed(keyVerifier{key: pub}).AllowUnboundVersion(), nil, "", nil},
		{"another version is not allowed by that", Signed(keyVerifier{key: pub, version: "v1"}).AllowUnboundVersion(), nil, "", ErrVersionMismatch},
		{"the checksum file states it", Signed(keyVerifier{key: pub}), nil, "# version: v2\n", nil},
		{"the checksum file states another", Signed(keyVerifier{key: pub}), nil, "# version: v3\n", ErrVersionMismatch},
		{"the checksum file contradicts the signature", Signed(good), nil, "# version: v3\n", ErrVersionMismatch},
		{"the same, allowed to state none", Signed(good).AllowUnboundVersion(), nil, "# version: v3\n", ErrVersionMismatch},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := installed(t, "v1")
			rel := releaseOf(t, "v2", "v2")
			sums := []byte(tt.extra + digests["v2"].Hex() + "  app\n")
			sign := tt.sign
			if sign == nil {
				sign = func(s []byte) []byte { return ed25519.Sign(priv, s) }
			}
			rel.Lookup = func(name string) (Asset, error) {
				switch sig := sign(sums); {
				case name == "app.sha256":
					return rel.asset("v2", name, sums), nil
				case name == "app.sha256.sig" && sig != nil:
					return rel.asset("v2", name, sig), nil
				}
				return Asset{}, ErrNotFound
			}
			u := updater(t, path, func(c *Config) { c.Trust = tt.trust })
			res, err := u.Apply(t.Context(), rel.Release)
			if tt.want == nil {
				require.NoError(t, err)
				want := "signed by test key, as version v2"
				if tt.name == "states none, allowed" {
					want = "signed by test key, for any version"
				}
				assert.Equal(t, want, res.Policy)
				st, err := u.Status()
				require.NoError(t, err)
				assert.Equal(t, want, st.Current.Policy)
				return
			}
			require.ErrorIs(t, err, tt.want)
			assert.Zero(t, rel.opened["app"], "not downloaded")
			assert.Equal(t, "v1", run(t, path))
		})
	}
}

// Only the place that the caller's template gives the version binds it: a
// pre-release, or a platform, may have the version's letters in its name too.
func TestVersionInTheAssetsName(t *testing.T) {
	pub, priv, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	for _, tt := range []struct {
		asset, template string
		want            error
	}{
		{"app-v1.2.0", "{name}-{version}", nil},
		{"app_1.2.0_x", "{name}_{semver}_x", nil},
		{"app-v1.2.0", "app-v1.2.0", ErrVersionNotBound},
		{"app-v1.2.0-rc1", "app-v1.2.0-rc1", ErrVersionNotBound},
		{"app-v1.2.0-rc1", "", ErrVersionNotBound},
		{"app-v1.2.0-rc1", "{name}-{version}", ErrNotFound},
	} {
		t.Run(tt.asset+" as "+tt.template, func(t *testing.T) {
			rel := releaseOf(t, "v1.2.0", "v2")
			rel.Assets[0] = rel.asset("v1.2.0", tt.asset, contents["v2"])
			sums := []byte(digests["v2"].Hex() + "  " + tt.asset + "\n")
			rel.Lookup = func(name string) (Asset, error) {
				switch name {
				case "checksums.txt":
					return rel.asset("v1.2.0", name, sums), nil
				case "checksums.txt.sig":
					return rel.asset("v1.2.0", name, ed25519.Sign(priv, sums)), nil
				}
				return Asset{}, ErrNotFound
			}
			u := updater(t, installed(t, "v1"), func(c *Config) {
				c.Trust, c.Asset = Signed(keyVerifier{key: pub}), tt.template
			})
			_, err := u.Apply(t.Context(), rel.Release)
			if tt.want == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, tt.want)
		})
	}
}

// A forged signature is refused, whatever another verifier found missing.
func TestSignedClass(t *testing.T) {
	pub, _, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	forged := keyVerifier{key: pub}
	for _, trust := range []Trust{Signed(forged, missing{}), Signed(missing{}, forged)} {
		rel := releaseOf(t, "v2", "v2")
		lookup := rel.Lookup
		rel.Lookup = func(name string) (Asset, error) {
			if name == "app.sha256.sig" {
				return rel.asset("v2", name, []byte("forged")), nil
			}
			return lookup(name)
		}
		_, err := updater(t, installed(t, "v1"), func(c *Config) { c.Trust = trust }).Apply(t.Context(), rel.Release)
		require.ErrorIs(t, err, ErrSignature)
		assert.Equal(t, Refused, ClassOf(err))
	}
	_, err = updater(t, installed(t, "v1"), func(c *Config) { c.Trust = Signed(missing{}) }).Apply(t.Context(), releaseOf(t, "v2", "v2").Release)
	assert.Equal(t, Temporary, ClassOf(err))
}

// A signature that could not be asked for may be there: nobody knows that the release
// was not signed.
func TestSignatureUnknown(t *testing.T) {
	for _, tt := range []struct {
		name  string
		trust Trust
		want  Class
	}{
		{"both are missing", Signed(missing{}, missing{}), Refused},
		{"one can't be fetched", Signed(missing{}, unreachable{}), Temporary},
		{"one can't be fetched, asked first", Signed(unreachable{}, missing{}), Temporary},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rel := releaseOf(t, "v2", "v2")
			rel.Lookup = nil
			rel.Assets = append(rel.Assets, rel.asset("v2", "app.sha256", []byte(digests["v2"].Hex()+"  app\n")))
			_, err := updater(t, installed(t, "v1"), func(c *Config) { c.Trust, c.Asset = tt.trust, "app" }).Apply(t.Context(), rel.Release)
			assert.Equal(t, tt.want, ClassOf(err), "%v", err)
			assert.Equal(t, tt.want == Refused, errors.Is(err, ErrSignature))
		})
	}
}

type unreachable struct{}

func (unreachable) Verify(context.Context, Message) (Statement, error) {
	return Statement{}, ErrNetwork
}

type missing struct{}

func (missing) Verify(context.Context, Message) (Statement, error) { return Statement{}, ErrNotFound }

// A release that lists all that it has, and no signature, was not signed; one that
// is being uploaded may be yet.
func TestSignatureMissing(t *testing.T) {
	pub, _, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	for _, tt := range []struct {
		name   string
		change func(*release)
		want   Class
	}{
		{"complete", func(*release) {}, Refused},
		{"young", func(r *release) { r.Young = true }, Temporary},
		{"not uploaded yet", func(r *release) {
			r.Assets = append(r.Assets, Asset{Name: "app.sha256.sig", NotReady: true})
		}, Temporary},
		{"not known", func(r *release) {
			r.Lookup = func(string) (Asset, error) { return Asset{}, ErrNotFound }
		}, Temporary},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rel := releaseOf(t, "v2", "v2")
			rel.Lookup = nil
			rel.Assets = append(rel.Assets, rel.asset("v2", "app.sha256", []byte(digests["v2"].Hex()+"  app\n")))
			tt.change(rel)
			u := updater(t, installed(t, "v1"), func(c *Config) { c.Trust, c.Asset = Signed(keyVerifier{key: pub}), "app" })
			_, err := u.Apply(t.Context(), rel.Release)
			require.ErrorIs(t, err, ErrNotFound)
			assert.Equal(t, tt.want, ClassOf(err), "%v", err)
			assert.Equal(t, tt.want == Refused, errors.Is(err, ErrSignature))
			assert.Zero(t, rel.opened["app"])
		})
	}
}

// A checksum file that is not signed, beside one that is: goreleaser signs the list,
// and <asset>.sha256 comes first. A bad signature is no missing one.
func TestSignedBesideUnsigned(t *testing.T) {
	pub, priv, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	list := []byte(digests["v2"].Hex() + "  app\n")
	good := ed25519.Sign(priv, list)
	for _, tt := range []struct {
		name  string
		files map[string][]byte
		want  error
		last  string // the checksum file that the error is about
	}{
		{"the list is signed", map[string][]byte{"app.sha256": list, "checksums.txt": list, "checksums.txt.sig": good}, nil, ""},
		{"the last one is", map[string][]byte{"app.sha256": list, "checksums.txt": list, "SHA256SUMS": list, "SHA256SUMS.sig": good}, nil, ""},
		{"none is", map[string][]byte{"app.sha256": list, "checksums.txt": list}, ErrNotFound, "app.sha256"},
		{"the first badly", map[string][]byte{"app.sha256": list, "app.sha256.sig": []byte("x"), "checksums.txt": list, "checksums.txt.sig": good}, ErrSignature, "app.sha256"},
		{"the second badly", map[string][]byte{"app.sha256": list, "checksums.txt": list, "checksums.txt.sig": []byte("x")}, ErrSignature, "checksums.txt"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rel := releaseOf(t, "v2", "v2")
			rel.Lookup = func(name string) (Asset, error) {
				if data, ok := tt.files[name]; ok {
					return rel.asset("v2", name, data), nil
				}
				return Asset{}, ErrNotFound
			}
			path := installed(t, "v1")
			u := updater(t, path, func(c *Config) { c.Trust = Signed(keyVerifier{key: pub, version: "v2"}) })
			_, err := u.Apply(t.Context(), rel.Release)
			if tt.want == nil {
				require.NoError(t, err)
				assert.Equal(t, "v2", run(t, path))
				return
			}
			require.ErrorIs(t, err, tt.want)
			assert.Contains(t, err.Error(), tt.last)
			assert.Equal(t, "v1", run(t, path))
		})
	}
}

// digestVerifier is for a signature of the asset itself.
type digestVerifier struct{ Statement }

func (v digestVerifier) Verify(context.Context, Message) (Statement, error) { return v.Statement, nil }

// Beside a signature of the asset the checksum file decides nothing.
func TestSignedAsset(t *testing.T) {
	for _, tt := range []struct {
		name      string
		statement Statement
		unbound   bool
		want      error
	}{
		{"a version", Statement{Key: "k", Version: "v2", Digest: digests["v2"]}, false, nil},
		{"another version", Statement{Key: "k", Version: "v3", Digest: digests["v2"]}, true, ErrVersionMismatch},
		{"no version", Statement{Key: "k", Digest: digests["v2"]}, false, ErrVersionNotBound},
		{"no version, allowed", Statement{Key: "k", Digest: digests["v2"]}, true, nil},
		{"another digest than listed", Statement{Key: "k", Version: "v2", Digest: digests["v3"]}, false, ErrDigestMismatch},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rel := releaseOf(t, "v2", "v2")
			rel.Assets[0] = rel.asset("v2", "app-v2", contents["v2"])
			rel.Lookup = func(name string) (Asset, error) {
				if name == "checksums.txt" {
					return rel.asset("v2", name, []byte("# version: v2\n"+digests["v2"].Hex()+"  app-v2\n")), nil
				}
				return Asset{}, ErrNotFound
			}
			path := installed(t, "v1")
			u := updater(t, path, func(c *Config) {
				c.Asset, c.Trust = "app-{version}", Signed(digestVerifier{tt.statement})
				if tt.unbound {
					c.Trust = c.Trust.AllowUnboundVersion()
				}
			})
			_, err := u.Apply(t.Context(), rel.Release)
			if tt.want != nil {
				require.ErrorIs(t, err, tt.want)
				assert.Equal(t, "v1", run(t, path))
				return
			}
			require.NoError(t, err)
			assert.Equal(t, "v2", run(t, path))
		})
	}
}

// gunzip is an Unpacker as an importer would write one.
type gunzip struct{}

func (gunzip) Unpack(_ context.Context, archive io.ReaderAt, size int64, name string) (io.ReadCloser, error) {
	return gzip.NewReader(io.NewSectionReader(archive, 0, size))
}

func TestUnpack(t *testing.T) {
	var archive bytes.Buffer
	w := gzip.NewWriter(&archive)
	_, err := w.Write(contents["v2"])
	require.NoError(t, err)
	require.NoError(t, w.Close())
	release := func(data []byte) *release {
		r := releaseOf(t, "v2", "v2")
		r.Assets[0] = r.asset("v2", "app.gz", data)
		return r
	}
	sum := digestOf(archive.Bytes())
	path := installed(t, "v1")
	u := updater(t, path, func(c *Config) { c.Trust, c.Unpack = Pinned(sum), gunzip{} })
	rel := release(archive.Bytes())
	for _, want := range []Outcome{Updated, UpToDate} {
		res, err := u.Apply(t.Context(), rel.Release)
		require.NoError(t, err)
		assert.Equal(t, want, res.Outcome)
		assert.Equal(t, digests["v2"], res.SHA256)
	}
	assert.Equal(t, "v2", run(t, path))
	assert.Equal(t, 1, rel.opened["app.gz"], "known by the archive's digest")
	clean(t, path, "unpacked")

	// The archive is verified before it is opened; one that holds something else is refused.
	page := new(bytes.Buffer)
	w = gzip.NewWriter(page)
	_, _ = w.Write([]byte("<html>"))
	require.NoError(t, w.Close())
	for name, tt := range map[string]struct {
		trust Trust
		max   int64
		want  error
	}{
		"other digest":   {Pinned(sum), 0, ErrDigestMismatch},
		"no program":     {Pinned(digestOf(page.Bytes())), 0, ErrFormat},
		"not an archive": {Pinned(digestOf(page.Bytes()[3:])), 0, ErrFormat},
	} {
		t.Run(name, func(t *testing.T) {
			data := page.Bytes()
			if name == "not an archive" {
				data = data[3:]
			}
			path := installed(t, "v1")
			u := updater(t, path, func(c *Config) { c.Trust, c.Unpack = tt.trust, gunzip{} })
			_, err := u.Apply(t.Context(), release(data).Release)
			require.ErrorIs(t, err, tt.want)
			assert.Equal(t, []string{".app.d", ".app.d/slots", ".app.d/state.json", "app"}, sorted(listing(t, filepath.Dir(path))))
		})
	}
}

func TestUnpackBomb(t *testing.T) {
	var archive bytes.Buffer
	w := gzip.NewWriter(&archive)
	_, err := io.CopyN(w, endless{}, 64<<20)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	path := installed(t, "v1")
	rel := releaseOf(t, "v2", "v2")
	rel.Assets[0] = rel.asset("v2", "app.gz", archive.Bytes())
	u := updater(t, path, func(c *Config) { c.Trust, c.Unpack, c.MaxSize = Pinned(digestOf(archive.Bytes())), gunzip{}, 1<<20 })
	_, err = u.Apply(t.Context(), rel.Release)
	require.ErrorIs(t, err, ErrTooLarge)
	assert.Equal(t, []string{".app.d", ".app.d/slots", ".app.d/state.json", "app"}, sorted(listing(t, filepath.Dir(path))))
}

// A program that updates itself is told to restart, also when somebody else did it.
func TestRestartNeeded(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	path := filepath.Join(dir, "app")
	out, err := exec.Command("cp", self, path).CombinedOutput()
	require.NoError(t, err, "%s", out)
	cmd := exec.Command(path)
	cmd.Env = append(os.Environ(), childEnv+"=self\n"+programs["v2"]+"\n"+digests["v2"].String())
	out, err = cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, fmt.Sprintf("target %s\nup to date false\nupdated true\nup to date true\nrolled back false\nrejected false\n", path), string(out))
}

func TestOwnExecutableNamedDeleted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app (deleted)")
	self, err := os.Executable()
	require.NoError(t, err)
	out, err := exec.Command("cp", self, path).CombinedOutput()
	require.NoError(t, err, "%s", out)
	cmd := exec.Command(path)
	cmd.Env = append(os.Environ(), childEnv+"=where")
	out, err = cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, path+"\n", string(out))
}

func TestClassOf(t *testing.T) {
	assert.Equal(t, Temporary, ClassOf(fmt.Errorf("x: %w", &RateLimitError{Host: "h", Reset: time.Unix(0, 0)})))
	assert.ErrorIs(t, &RateLimitError{}, ErrLimited)
	assert.Equal(t, Class(0), ClassOf(errors.New("other")))
	assert.Equal(t, Class(0), ClassOf(nil))
	assert.Equal(t, Local, ClassOf(&Error{Step: "swap", Err: explain(os.ErrPermission)}))
	assert.Equal(t, "none", Class(0).String())
}
