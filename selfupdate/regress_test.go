package selfupdate

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A rejected program is rejected under every digest that somebody publishes for it,
// and after one download it is known by that.
func TestRejectedUnderAnotherDigest(t *testing.T) {
	path, u, _ := updated(t)
	_, err := u.Rollback(t.Context(), RollbackOptions{})
	require.NoError(t, err)

	rel := releaseOf(t, "v2", "v2")
	rel.Lookup = func(name string) (Asset, error) {
		if name != "app.sha512" {
			return Asset{}, ErrNotFound
		}
		return rel.asset("v2", name, []byte(content512(t, programs["v2"]).Hex()+"  app\n")), nil
	}
	for range 3 {
		_, err = u.Apply(t.Context(), rel.Release)
		require.ErrorIs(t, err, ErrRejected)
	}
	assert.Equal(t, 1, rel.opened["app"], "known after one download")

	packed := gzipped(t, contents["v2"])
	rel = releaseOf(t, "v2", "v2")
	rel.Assets[0] = rel.asset("v2", "app.gz", packed)
	archive := updater(t, path, func(c *Config) { c.Trust, c.Unpack = Pinned(digestOf(packed)), gunzip{} })
	_, err = archive.Apply(t.Context(), rel.Release)
	require.ErrorIs(t, err, ErrRejected)
	assert.Equal(t, "v1", run(t, path))
	clean(t, path, "refused")
}

func gzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

// Another archive of the program that is there is nothing to do.
func TestSameProgramInAnotherArchive(t *testing.T) {
	t.Run("with a record", func(t *testing.T) { path, _, _ := updated(t); sameProgram(t, path) })
	t.Run("without", func(t *testing.T) { sameProgram(t, installed(t, "v2")) })
}

func sameProgram(t *testing.T, path string) {
	t.Helper()
	before := statInode(t, path)
	packed := gzipped(t, contents["v2"])
	rel := releaseOf(t, "v2", "v2")
	rel.Assets[0] = rel.asset("v2", "app.gz", packed)
	u := updater(t, path, func(c *Config) { c.Trust, c.Unpack = Pinned(digestOf(packed)), gunzip{} })
	for range 2 {
		res, err := u.Apply(t.Context(), rel.Release)
		require.NoError(t, err)
		assert.Equal(t, UpToDate, res.Outcome)
	}
	assert.Equal(t, before, statInode(t, path))
	assert.Equal(t, 1, rel.opened["app.gz"])
	link := filepath.Join(filepath.Dir(path), ".app.rollback")
	if _, err := os.Stat(link); err == nil {
		assert.Equal(t, "v1", run(t, link), "the way back is what it was")
	}
}

// What somebody puts there while a way back is unfinished stays.
func TestForeignFileDuringAWayBack(t *testing.T) {
	path, _, _ := updated(t)
	interruptRollback(t, path)
	require.NoError(t, replaceBy(path, contents["v3"]))

	res, err := updater(t, path).Apply(t.Context(), releaseOf(t, "v3", "v3").Release)
	require.NoError(t, err)
	assert.Equal(t, UpToDate, res.Outcome)
	assert.Equal(t, "v3", run(t, path))
}

func TestInstallWhereTheTargetWasDeleted(t *testing.T) {
	for _, v := range []string{"v1", "v2", "v3"} {
		path, _, _ := updated(t)
		require.NoError(t, os.Remove(path))
		rel := releaseOf(t, v, v)
		_, err := updater(t, path).Apply(t.Context(), rel.Release)
		require.ErrorIs(t, err, ErrNoTarget)
		assert.Empty(t, rel.opened)
		_, err = updater(t, path, func(c *Config) { c.AllowCreate = true }).Apply(t.Context(), rel.Release)
		require.NoError(t, err, v)
		assert.Equal(t, v, run(t, path))
		clean(t, path, v)
	}
}

// A file that appears right after the rename is not taken for what was installed.
func TestReplacedRightAfterTheSwap(t *testing.T) {
	for name, do := range map[string]func(u *Updater) error{
		"apply":    func(u *Updater) error { return applyRelease(u, context.Background(), releaseOf(t, "v1", "v1").Release) },
		"rollback": func(u *Updater) error { _, err := u.Rollback(context.Background(), RollbackOptions{}); return err },
	} {
		t.Run(name, func(t *testing.T) {
			path, _, _ := updated(t)
			sys := system()
			sys.commit = func(from, to string) error {
				err := commit(from, to)
				require.NoError(t, replaceBy(path, contents["v3"]))
				return err
			}
			u, err := newUpdater(Config{Target: path, Trust: UnsignedChecksum("test")}, sys)
			require.NoError(t, err)
			require.NoError(t, do(u))
			st, err := updater(t, path).Status()
			require.NoError(t, err)
			assert.True(t, st.Changed)
			assert.Equal(t, digests["v3"], st.Current.SHA256)
		})
	}
}

// "Up to date" is recorded for the file that was compared, not for its successor.
func TestReplacedBeforeItIsNoted(t *testing.T) {
	path := installed(t, "v2")
	sys := system()
	sys.lock = func(p string) (func(), error) {
		if filepath.Base(p) == "state.lock" {
			require.NoError(t, replaceBy(path, contents["v3"]))
		}
		return lockFile(p)
	}
	u, err := newUpdater(Config{Target: path, Trust: UnsignedChecksum("test")}, sys)
	require.NoError(t, err)
	rel := releaseOf(t, "v2", "v2")
	_, err = u.Apply(t.Context(), rel.Release)
	require.ErrorIs(t, err, ErrChanged)
	res, err := updater(t, path).Apply(t.Context(), rel.Release)
	require.NoError(t, err)
	assert.Equal(t, Updated, res.Outcome)
	assert.Equal(t, "v2", run(t, path))
}

// A way back never fails because the record has no room for its reason.
func TestRollbackWithLongReasons(t *testing.T) {
	path := installed(t, "v1")
	u := updater(t, path)
	for i := range 30 {
		data := append(bytes.Clone(contents["v2"]), byte(i))
		rel := releaseOf(t, strings.Repeat("<", 100)+fmt.Sprint(i), "v2")
		rel.Assets[0] = rel.asset(strings.Repeat("&", 600), "app", data)
		rel.Lookup = func(name string) (Asset, error) {
			return rel.asset("v", name, []byte(digestOf(data).Hex()+"  app\n")), nil
		}
		_, err := u.Apply(t.Context(), rel.Release)
		require.NoError(t, err)
		_, err = u.Rollback(t.Context(), RollbackOptions{Reason: strings.Repeat("<p>\n\x01", 100)})
		require.NoError(t, err, "rollback %d", i)
	}
	st, err := u.Status()
	require.NoError(t, err)
	assert.Len(t, st.Rejected, maxRejected)
}

// Owner and mode are those at the end of a download, not at its start.
func TestModeChangedDuringADownload(t *testing.T) {
	path := installed(t, "v1")
	rel := releaseOf(t, "v2", "v2")
	open := rel.Assets[0].Open
	rel.Assets[0].Open = func(ctx context.Context, p Position) (Body, error) {
		require.NoError(t, os.Chmod(path, 0o700))
		return open(ctx, p)
	}
	require.NoError(t, os.Chmod(path, 0o755|os.ModeSetuid))
	_, err := updater(t, path).Apply(t.Context(), rel.Release)
	require.NoError(t, err)
	fi, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), fi.Mode())
}

// URLs that are the same as far as the record has room are not the same.
func TestLongURLs(t *testing.T) {
	path := installed(t, "v1")
	u := updater(t, path)
	long := strings.Repeat("x", maxURL)
	for _, v := range []string{"v2", "v3"} {
		rel := releaseOf(t, "latest", v)
		rel.Assets[0].URL = "https://example.com/" + long + v
		res, err := u.Apply(t.Context(), rel.Release)
		require.NoError(t, err)
		assert.Equal(t, Updated, res.Outcome)
		assert.Equal(t, v, run(t, path))
	}
}

// What came in by less trust is looked at again when more is asked for.
func TestTrustRaised(t *testing.T) {
	path, _, rel := updated(t)
	u := updater(t, path, func(c *Config) { c.Trust = Signed(missing{}) })
	_, err := u.Apply(t.Context(), rel.Release)
	require.ErrorIs(t, err, ErrNotFound)
	assert.Equal(t, "v2", run(t, path))
}

func TestMisbehavingReaders(t *testing.T) {
	idle := readerFunc(func([]byte) (int, error) { return 0, nil })
	for name, change := range map[string]func(*release, *Config){
		"a body that never gets on": func(r *release, _ *Config) {
			r.Assets[0].Open = func(context.Context, Position) (Body, error) {
				return Body{ReadCloser: io.NopCloser(idle), Size: -1}, nil
			}
		},
		"a checksum file that never gets on": func(r *release, _ *Config) {
			r.Lookup = func(n string) (Asset, error) {
				return Asset{Name: n, Size: -1, Open: func(context.Context, Position) (Body, error) {
					return Body{ReadCloser: io.NopCloser(idle), Size: -1}, nil
				}}, nil
			}
		},
		"an unpacker that finds nothing": func(r *release, c *Config) { c.Unpack = nothing{} },
		"a probe that changes the program": func(r *release, c *Config) {
			c.Probe = func(_ context.Context, p string) error { return os.WriteFile(p, []byte("garbage"), 0o755) }
		},
		"a probe that removes it": func(r *release, c *Config) {
			c.Probe = func(_ context.Context, p string) error { return os.Remove(p) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := installed(t, "v1")
			rel := releaseOf(t, "v2", "v2")
			_, err := updater(t, path, func(c *Config) { change(rel, c) }).Apply(t.Context(), rel.Release)
			require.Error(t, err)
			assert.NotZero(t, ClassOf(err), "%v", err)
			assert.Equal(t, "v1", run(t, path))
			for _, left := range listing(t, filepath.Dir(path)) {
				assert.Contains(t, []string{"app", ".app.d", ".app.d/slots", ".app.d/state.json"}, left)
			}
		})
	}
}

type nothing struct{}

func (nothing) Unpack(context.Context, io.ReaderAt, int64, string) (io.ReadCloser, error) {
	return nil, nil
}

func TestCancelledInTheProbe(t *testing.T) {
	path := installed(t, "v1")
	ctx, cancel := context.WithCancel(t.Context())
	u := updater(t, path, func(c *Config) { c.Probe = func(context.Context, string) error { cancel(); return nil } })
	_, err := u.Apply(ctx, releaseOf(t, "v2", "v2").Release)
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, "v1", run(t, path))
}

// Names so long that the way back would have none are refused before any request.
func TestLongNames(t *testing.T) {
	for n, want := range map[int]error{maxName - len(".") - len(".rollback"): nil, maxName - len(".rollback"): ErrUnsafeDir} {
		path := filepath.Join(t.TempDir(), strings.Repeat("x", n))
		copyProgram(t, "v1", path)
		rel := releaseOf(t, "v2", "v2")
		_, err := updater(t, path, func(c *Config) { c.Asset = "app" }).Apply(t.Context(), rel.Release)
		require.ErrorIs(t, err, want)
		if want != nil {
			assert.Empty(t, rel.opened)
		}
	}
}

// Status never sees half of an update.
func TestStatusDuringUpdates(t *testing.T) {
	path := installed(t, "v1")
	done := make(chan struct{})
	go func() {
		defer close(done)
		u := updater(t, path)
		for i := range 40 {
			v := []string{"v2", "v1"}[i%2]
			if _, err := u.Apply(context.Background(), releaseOf(t, v, v).Release); err != nil {
				t.Error(err)
			}
		}
	}()
	u := updater(t, path)
	for polls := 0; ; polls++ {
		st, err := u.Status()
		require.NoError(t, err)
		require.False(t, st.Changed, "poll %d", polls)
		select {
		case <-done:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

func TestClearThatMayNotLook(t *testing.T) {
	sys := system()
	sys.lstat = func(p string) (os.FileInfo, error) {
		if filepath.Base(p) == "state.json" {
			return nil, os.ErrPermission
		}
		return os.Lstat(p)
	}
	sys.lock = func(string) (func(), error) { return nil, os.ErrPermission }
	path := installed(t, "v1")
	require.NoError(t, os.Mkdir(filepath.Join(filepath.Dir(path), ".app.d"), 0o700))
	u, err := newUpdater(Config{Target: path, Trust: UnsignedChecksum("test")}, sys)
	require.NoError(t, err)
	_, err = u.Clear(t.Context(), ClearOptions{All: true})
	require.True(t, errors.Is(err, os.ErrPermission))
}

// A confirmation that finds a damaged record makes a new one: what it says nil of is
// what stays. It used to put a record without a phase in its place, at every call.
func TestConfirmDamagedRecord(t *testing.T) {
	m := trialMachine(t)
	u, _ := m.begin()
	require.NoError(t, u.Confirm(t.Context()))
	path := m.helper().target.record()
	require.NoError(t, os.WriteFile(path, []byte("damaged"), 0o600))
	require.NoError(t, u.Confirm(t.Context()))
	r := m.record()
	assert.Equal(t, phaseStable, r.Phase)
	assert.Equal(t, digests["s2"], r.Current.SHA256)
	assert.Equal(t, digests["s1"], r.Good[0].SHA256)
}

// A damaged slot's file is also .app.rollback: without a record to tell, that is no
// program to go back to.
func TestSalvageDamagedWayBack(t *testing.T) {
	path := installed(t, "s1")
	u := updater(t, path)
	require.NoError(t, applyRelease(u, t.Context(), releaseOf(t, "s2", "s2").Release))
	f, err := os.OpenFile(u.target.rollback, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("x"), 2000)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoError(t, os.WriteFile(u.target.record(), []byte("damaged"), 0o600))
	_, err = u.Rollback(t.Context(), RollbackOptions{})
	require.ErrorIs(t, err, ErrNoPrevious)
	assert.Equal(t, "s2", whole(t, path))
}
