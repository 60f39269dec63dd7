package selfupdate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/checksum"
)

func TestApplyReplaces(t *testing.T) {
	path := installed(t, "v1")
	u := updater(t, path, func(c *Config) { c.Current = "v1" })
	rel := releaseOf(t, "v2", "v2")

	res, err := u.Apply(t.Context(), rel.Release)
	require.NoError(t, err)
	assert.Equal(t, Updated, res.Outcome)
	assert.Equal(t, "v1", res.Previous)
	assert.Equal(t, "v2", run(t, path))
	assert.Equal(t, content256(t, programs["v2"]), res.SHA256)
	d1, d2 := content256(t, programs["v1"]).Hex(), content256(t, programs["v2"]).Hex()
	assert.ElementsMatch(t, []string{
		".app.d", ".app.d/slots", ".app.d/slots/" + d1, ".app.d/slots/" + d2, ".app.d/state.json", ".app.rollback", "app",
	}, listing(t, filepath.Dir(path)))
	assert.Equal(t, "v1", run(t, filepath.Join(filepath.Dir(path), ".app.rollback")))

	// Nothing to do: no request at all, whatever the program says of itself.
	before := listing(t, filepath.Dir(path))
	res, err = u.Apply(t.Context(), rel.Release)
	require.NoError(t, err)
	assert.Equal(t, UpToDate, res.Outcome)
	assert.Equal(t, map[string]int{"app": 1, "app.sha256": 1}, rel.opened)
	assert.Equal(t, before, listing(t, filepath.Dir(path)))
}

func TestApplyWhenTheDigestIsThere(t *testing.T) {
	path := installed(t, "v2")
	rel := releaseOf(t, "another-name", "v2")
	u := updater(t, path)
	for range 3 {
		res, err := u.Apply(t.Context(), rel.Release)
		require.NoError(t, err)
		assert.Equal(t, UpToDate, res.Outcome)
		assert.Equal(t, "another-name", res.Version)
	}
	assert.Equal(t, map[string]int{"app.sha256": 1}, rel.opened, "asked once, then recorded, never downloaded")

	u = updater(t, path, func(c *Config) { c.Refresh = true })
	_, err := u.Apply(t.Context(), rel.Release)
	require.NoError(t, err)
	assert.Equal(t, 2, rel.opened["app.sha256"], "Refresh asks again")

	rel.Version = ""
	_, err = updater(t, path).Apply(t.Context(), rel.Release)
	require.NoError(t, err)
	assert.Equal(t, 3, rel.opened["app.sha256"], "an empty version is never the same as last time")
}

func TestApplySHA512Only(t *testing.T) {
	path := installed(t, "v1")
	rel := releaseOf(t, "v2", "v2")
	sums := content512(t, programs["v2"]).Hex() + "  bin/app\n"
	rel.Lookup = func(name string) (Asset, error) {
		if name != "app.sha512" {
			return Asset{}, ErrNotFound
		}
		return rel.asset("v2", name, []byte(sums)), nil
	}
	u := updater(t, path, func(c *Config) { c.Refresh = true })
	for _, want := range []Outcome{Updated, UpToDate} {
		res, err := u.Apply(t.Context(), rel.Release)
		require.NoError(t, err)
		assert.Equal(t, want, res.Outcome)
	}
	assert.Equal(t, 1, rel.opened["app"])
	st, err := u.Status()
	require.NoError(t, err)
	assert.Equal(t, content512(t, programs["v2"]), st.Current.Published)

	_, err = u.Rollback(t.Context(), RollbackOptions{})
	require.NoError(t, err)
	_, err = u.Apply(t.Context(), rel.Release)
	require.ErrorIs(t, err, ErrRejected, "rejected by the publisher's digest, before the download")
	assert.Equal(t, 1, rel.opened["app"])

	// Without a record, the digest on disk decides, in the publisher's algorithm.
	path = installed(t, "v2")
	res, err := updater(t, path).Apply(t.Context(), rel.Release)
	require.NoError(t, err)
	assert.Equal(t, UpToDate, res.Outcome)
}

func TestApplyRefuses(t *testing.T) {
	other, err := checksum.ParseDigest(strings.Repeat("ab", 32))
	require.NoError(t, err)
	for _, tt := range []struct {
		name  string
		setup func(t *testing.T, c *Config, r *release)
		want  error
		class Class
	}{
		{"nothing wrong", func(*testing.T, *Config, *release) {}, nil, 0},
		{"digest differs", func(t *testing.T, c *Config, r *release) {
			r.Lookup = func(n string) (Asset, error) { return r.asset("v2", n, []byte(other.Hex()+"  app\n")), nil }
		}, ErrDigestMismatch, Refused},
		{"pinned digest differs", func(t *testing.T, c *Config, r *release) { c.Trust = Pinned(other) }, ErrDigestMismatch, Refused},
		{"second opinion differs", func(t *testing.T, c *Config, r *release) { r.Assets[0].Sum = other }, ErrDigestMismatch, Refused},
		{"no checksum file anywhere", func(t *testing.T, c *Config, r *release) {
			r.Lookup = func(n string) (Asset, error) { return Asset{}, ErrNotFound }
		}, ErrNotFound, Temporary},
		{"no checksum file in a complete list", func(t *testing.T, c *Config, r *release) { r.Lookup = nil }, ErrNoChecksum, Refused},
		{"no checksum file in a young release", func(t *testing.T, c *Config, r *release) { r.Lookup, r.Young = nil, true }, ErrNotFound, Temporary},
		{"checksum file listed, but not uploaded yet", func(t *testing.T, c *Config, r *release) {
			r.Assets, r.Lookup, c.Asset = append(r.Assets, Asset{Name: "checksums.txt", NotReady: true}), nil, "app"
		}, ErrNotFound, Temporary},
		{"no asset for this machine", func(t *testing.T, c *Config, r *release) {
			r.Assets = []Asset{{Name: "app-plan9-mips"}, {Name: "app-plan9-386"}}
		}, ErrAsset, Refused},
		{"no asset for this machine yet", func(t *testing.T, c *Config, r *release) {
			r.Assets, r.Young = []Asset{{Name: "app-plan9-mips"}, {Name: "app-plan9-386"}}, true
		}, ErrNotFound, Temporary},
		{"a bucket that says 403 for everything", func(t *testing.T, c *Config, r *release) {
			r.Lookup = func(n string) (Asset, error) { return denied(n), nil }
		}, ErrResponse, Refused},
		{"checksum file is HTML", func(t *testing.T, c *Config, r *release) {
			r.Lookup = func(n string) (Asset, error) { return r.asset("v2", n, []byte("<!DOCTYPE html><p>404")), nil }
		}, checksum.ErrHTML, Refused},
		{"asset not listed in the checksum file", func(t *testing.T, c *Config, r *release) {
			r.Lookup = func(n string) (Asset, error) { return r.asset("v2", n, []byte(other.Hex()+"  other\n")), nil }
		}, checksum.ErrNotListed, Refused},
		{"checksum file over 1 MiB", func(t *testing.T, c *Config, r *release) {
			r.Lookup = func(n string) (Asset, error) {
				a := r.asset("v2", n, bytes.Repeat([]byte("#\n"), 1<<20))
				a.Size = -1
				return a, nil
			}
		}, ErrTooLarge, Refused},
		{"upload not complete", func(t *testing.T, c *Config, r *release) { r.Assets[0].NotReady = true }, ErrNotFound, Temporary},
		{"larger than allowed", func(t *testing.T, c *Config, r *release) { c.MaxSize = 1000 }, ErrTooLarge, Refused},
		{"enormous by its own word", func(t *testing.T, c *Config, r *release) { r.Assets[0].Size = 1 << 60 }, ErrTooLarge, Refused},
		{"opens nothing", func(t *testing.T, c *Config, r *release) {
			r.Assets[0].Open = func(context.Context, Position) (Body, error) { return Body{}, nil }
		}, ErrResponse, Refused},
		{"checksum file opens nothing", func(t *testing.T, c *Config, r *release) {
			r.Lookup = func(n string) (Asset, error) {
				return Asset{Name: n, Open: func(context.Context, Position) (Body, error) { return Body{}, nil }}, nil
			}
		}, ErrResponse, Refused},
		{"endless without a size", func(t *testing.T, c *Config, r *release) {
			c.MaxSize = 1 << 20
			r.Assets[0].Size = -1
			r.Assets[0].Open = func(context.Context, Position) (Body, error) {
				return Body{ReadCloser: io.NopCloser(endless{}), Size: -1}, nil
			}
		}, ErrTooLarge, Refused},
		{"shorter than announced", func(t *testing.T, c *Config, r *release) {
			r.Assets[0].Open = func(context.Context, Position) (Body, error) {
				return Body{ReadCloser: io.NopCloser(strings.NewReader("short")), Size: r.Assets[0].Size}, nil
			}
		}, ErrSize, Refused},
		{"sizes contradict", func(t *testing.T, c *Config, r *release) { r.Assets[0].Size++ }, ErrSize, Refused},
		{"does not start at the start", func(t *testing.T, c *Config, r *release) {
			open := r.Assets[0].Open
			r.Assets[0].Open = func(ctx context.Context, p Position) (Body, error) {
				b, err := open(ctx, p)
				b.Start = 7
				return b, err
			}
		}, ErrResponse, Refused},
		{"connection breaks", func(t *testing.T, c *Config, r *release) {
			r.Assets[0].Open = func(context.Context, Position) (Body, error) {
				return Body{ReadCloser: io.NopCloser(io.MultiReader(strings.NewReader("half"), broken{})), Size: -1}, nil
			}
		}, ErrNetwork, Temporary},
		{"an HTML page with a matching digest", func(t *testing.T, c *Config, r *release) {
			page := []byte("<!DOCTYPE html><html>please log in</html>")
			r.Assets[0] = r.asset("v2", "app", page)
			c.Trust = Pinned(digestOf(page))
		}, ErrFormat, Refused},
		{"probe says no", func(t *testing.T, c *Config, r *release) {
			c.Probe = func(ctx context.Context, path string) error { return errors.New("does not like it") }
		}, ErrProbe, Refused},
		{"policy says no", func(t *testing.T, c *Config, r *release) {
			c.Refuse = func(target string) error { return errors.New("installed by apt") }
		}, ErrManaged, Refused},
		{"no asset of that name", func(t *testing.T, c *Config, r *release) {
			c.Asset = "{name}-{os}-{arch}"
			r.Lookup = nil
		}, ErrNotFound, Temporary},
		{"nothing listed, no name given", func(t *testing.T, c *Config, r *release) { r.Assets = nil }, ErrAsset, Refused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := installed(t, "v1")
			rel := releaseOf(t, "v2", "v2")
			cfg := Config{Target: path, Trust: UnsignedChecksum("test")}
			tt.setup(t, &cfg, rel)
			u, err := New(cfg)
			require.NoError(t, err)
			_, err = u.Apply(t.Context(), rel.Release)
			if tt.want == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, tt.want)
			assert.Equal(t, tt.class, ClassOf(err), "%v", err)
			assert.Equal(t, "v1", run(t, path))
			for _, left := range listing(t, filepath.Dir(path)) {
				assert.Contains(t, []string{"app", ".app.d", ".app.d/slots", ".app.d/state.json"}, left, "nothing is left behind")
			}
		})
	}
}

// denied is an asset that the server does not hand out.
func denied(name string) Asset {
	return Asset{Name: name, Size: -1, Open: func(context.Context, Position) (Body, error) {
		return Body{}, fmt.Errorf("%w: status 403", ErrResponse)
	}}
}

// Some buckets say 403 for a file that they don't have.
func TestChecksumFileAfterA403(t *testing.T) {
	path := installed(t, "v1")
	rel := releaseOf(t, "v2", "v2")
	rel.Lookup = func(name string) (Asset, error) {
		if name == "checksums.txt" {
			return rel.asset("v2", name, []byte(digests["v2"].Hex()+"  app\n")), nil
		}
		return denied(name), nil
	}
	_, err := updater(t, path).Apply(t.Context(), rel.Release)
	require.NoError(t, err)
	assert.Equal(t, "v2", run(t, path))
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func digestOf(data []byte) checksum.Digest {
	h := checksum.SHA256.New()
	_, _ = h.Write(data)
	return checksum.Of(checksum.SHA256, h)
}

func TestNewRefusesNoTrust(t *testing.T) {
	for name, tr := range map[string]Trust{
		"zero": {}, "no digest": Pinned(checksum.Digest{}), "no verifier": Signed(), "nil verifier": Signed(nil), "no reason": UnsignedChecksum(" "),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(Config{Target: installed(t, "v1"), Trust: tr})
			require.Error(t, err)
		})
	}
}

func TestApplyOfAReader(t *testing.T) {
	path := installed(t, "v1")
	f, err := os.Open(programs["v2"])
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	res, err := Apply(t.Context(), f, Options{Target: path, Digest: content256(t, programs["v2"]), Version: "v2"})
	require.NoError(t, err)
	assert.Equal(t, Updated, res.Outcome)
	assert.Equal(t, "v2", run(t, path))

	// Not read when there is nothing to do.
	res, err = Apply(t.Context(), broken{}, Options{Target: path, Digest: content256(t, programs["v2"]), Version: "v2"})
	require.NoError(t, err)
	assert.Equal(t, UpToDate, res.Outcome)

	_, err = Apply(t.Context(), f, Options{Target: path})
	require.Error(t, err, "a digest is required")

	// Two updates in one process go to the original path; the way back goes one by one.
	f3, err := os.Open(programs["v3"])
	require.NoError(t, err)
	defer func() { _ = f3.Close() }()
	_, err = Apply(t.Context(), f3, Options{Target: path, Digest: content256(t, programs["v3"]), Version: "v3"})
	require.NoError(t, err)
	for _, want := range []string{"v2", "v1"} {
		_, err = Rollback(t.Context(), RollbackOptions{Target: path})
		require.NoError(t, err)
		assert.Equal(t, want, run(t, path))
	}
	_, err = Rollback(t.Context(), RollbackOptions{Target: path})
	require.ErrorIs(t, err, ErrNoPrevious)
	assert.Equal(t, "v1", run(t, path))
}

func TestApplyWhileItRuns(t *testing.T) {
	path := installed(t, "v1")
	cmd := exec.Command(path, "sleep")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	_, err = out.Read(make([]byte, 16))
	require.NoError(t, err)
	inodeBefore := statInode(t, path)

	_, err = updater(t, path).Apply(t.Context(), releaseOf(t, "v2", "v2").Release)
	require.NoError(t, err)
	assert.Equal(t, "v2", run(t, path))
	assert.NotEqual(t, inodeBefore, statInode(t, path), "always another inode (macOS kills a changed one)")
	require.NoError(t, cmd.Process.Signal(os.Interrupt), "the old program still runs")
}

func statInode(t testing.TB, path string) uint64 {
	t.Helper()
	fi, err := os.Stat(path)
	require.NoError(t, err)
	return inode(fi)
}

func TestFirstInstall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app")
	rel := releaseOf(t, "v1", "v1")
	_, err := updater(t, path).Apply(t.Context(), rel.Release)
	require.ErrorIs(t, err, ErrNoTarget)
	assert.Empty(t, rel.opened, "found out before any request")

	u := updater(t, path, func(c *Config) { c.AllowCreate = true })
	res, err := u.Apply(t.Context(), rel.Release)
	require.NoError(t, err)
	assert.Equal(t, Updated, res.Outcome)
	assert.Equal(t, "v1", run(t, path))
	fi, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755), fi.Mode())
	_, err = u.Rollback(t.Context(), RollbackOptions{})
	require.ErrorIs(t, err, ErrNoPrevious)

	_, err = New(Config{Target: filepath.Join(t.TempDir(), "none", "app"), Trust: UnsignedChecksum("test"), AllowCreate: true})
	require.ErrorIs(t, err, ErrNoTarget, "the directory must exist")
}

func TestSymlinkedTarget(t *testing.T) {
	path := installed(t, "v1")
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(path, link))
	u := updater(t, link)
	_, err := u.Apply(t.Context(), releaseOf(t, "v2", "v2").Release)
	require.NoError(t, err)
	to, err := os.Readlink(link)
	require.NoError(t, err, "the link stays a link")
	assert.Equal(t, path, to)
	assert.Equal(t, "v2", run(t, link))

	dangling := filepath.Join(t.TempDir(), "dangling")
	require.NoError(t, os.Symlink("/nowhere/app", dangling))
	_, err = New(Config{Target: dangling, Trust: UnsignedChecksum("test"), AllowCreate: true})
	require.ErrorIs(t, err, ErrNoTarget)
}

func TestTargetIsNoFile(t *testing.T) {
	_, err := updater(t, t.TempDir()).Apply(t.Context(), releaseOf(t, "v2", "v2").Release)
	require.ErrorIs(t, err, ErrNotRegular)
	_, err = updater(t, "/dev/null").Apply(t.Context(), releaseOf(t, "v2", "v2").Release)
	require.ErrorIs(t, err, ErrNotRegular)
}

func TestPlan(t *testing.T) {
	path := installed(t, "v1")
	u := updater(t, path, func(c *Config) { c.Current = "v2.0.0" })
	rel := releaseOf(t, "v1.9.0", "v2")
	p, err := u.Plan(t.Context(), rel.Release)
	require.NoError(t, err)
	assert.Equal(t, Downgrade, p.Action)
	assert.Equal(t, content256(t, programs["v2"]), p.Want)
	assert.Equal(t, []string{"app"}, listing(t, filepath.Dir(path)), "a dry run leaves nothing")

	rel.Version = "2fb7fd7"
	p, err = u.Plan(t.Context(), rel.Release)
	require.NoError(t, err)
	assert.Equal(t, Update, p.Action)

	_, err = u.Apply(t.Context(), rel.Release)
	require.NoError(t, err)
	p, err = u.Plan(t.Context(), rel.Release)
	require.NoError(t, err)
	assert.Equal(t, NothingToDo, p.Action)

	_, err = u.Rollback(t.Context(), RollbackOptions{Reason: "no good"})
	require.NoError(t, err)
	p, err = u.Plan(t.Context(), rel.Release)
	require.NoError(t, err)
	assert.Equal(t, IsRejected, p.Action)
	assert.Contains(t, p.Reason, "no good")
}
