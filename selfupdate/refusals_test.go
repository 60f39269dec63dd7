package selfupdate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// brokenRelease has a checksum file that is not of its program.
func brokenRelease(version string) *release {
	r := releaseWith(version, contents["s2"])
	r.Lookup = func(name string) (Asset, error) {
		if name == "app.sha256" {
			return r.asset(version, name, []byte(strings.Repeat("ab", 32)+"  app\n")), nil
		}
		return Asset{}, fmt.Errorf("%w: %q", ErrNotFound, name)
	}
	return r
}

// refusing is a machine on which a new process without a trial asks for each update.
func refusing(t *testing.T) *machine {
	m := newMachine(t, installed(t, "s1"), system())
	m.cfg.Trial = nil
	return m
}

func (m *machine) ask(rel *release) error {
	m.t.Helper()
	_, err := m.process().Apply(m.t.Context(), rel.Release)
	return err
}

// A broken release is not downloaded at every tick: twenty in ten minutes, each by
// another process.
func TestHeldBack(t *testing.T) {
	m, rel := refusing(t), brokenRelease("v2")
	var at []int
	for tick := range 20 {
		before := rel.opened["app"]
		plan, perr := m.process().Plan(t.Context(), rel.Release)
		fetched := rel.opened["app"] > before // Plan opens the asset, and reads nothing
		rel.opened["app"] = before
		err := m.ask(rel)
		require.Error(t, err)
		assert.Equal(t, Refused, ClassOf(err))
		if rel.opened["app"] > before {
			at = append(at, tick)
			require.ErrorIs(t, err, ErrDigestMismatch)
			require.NoError(t, perr)
			assert.Equal(t, Update, plan.Action)
			assert.True(t, fetched)
		} else {
			require.ErrorIs(t, err, ErrHeldBack)
			require.ErrorIs(t, perr, ErrHeldBack, "a dry run says the same")
			assert.False(t, fetched)
			assert.Contains(t, err.Error(), "digest mismatch", "why")
		}
		assert.Equal(t, "s1", m.at())
		m.clock.pass(30 * time.Second)
	}
	t.Logf("20 ticks of 30 s: %d downloads, at the ticks %v", rel.opened["app"], at)
	// At once, once more, and then after 1, 2 and 4 minutes.
	assert.Equal(t, []int{0, 1, 3, 7, 15}, at)
	clean(t, m.path, "after refusals")
	for range 24 * 120 { // a day
		m.clock.pass(30 * time.Second)
		_ = m.ask(rel)
	}
	t.Logf("and %d more in a day", rel.opened["app"]-len(at))
	assert.Less(t, rel.opened["app"], 32)
}

// What lifts it.
func TestHeldBackUntil(t *testing.T) {
	for _, tt := range []struct {
		name  string
		after func(t *testing.T, m *machine, rel *release)
		tried bool
	}{
		{"nothing", func(*testing.T, *machine, *release) {}, false},
		{"the wall clock moves by ten years", func(_ *testing.T, m *machine, _ *release) { m.clock.wall = m.clock.wall.AddDate(10, 0, 0) }, false},
		{"a reboot", func(_ *testing.T, m *machine, _ *release) { m.clock.boot, m.clock.mono = "boot2", time.Second }, true},
		{"Refresh", func(_ *testing.T, m *machine, _ *release) { m.cfg.Refresh = true }, true},
		{"another URL", func(_ *testing.T, _ *machine, rel *release) { rel.Assets[0].URL += "?mirror=2" }, true},
		{"cleared", func(t *testing.T, m *machine, _ *release) {
			_, err := m.process().Clear(t.Context(), ClearOptions{All: true})
			require.NoError(t, err)
		}, true},
		{"another target's update", func(t *testing.T, m *machine, _ *release) { require.NoError(t, m.ask(releaseOf(t, "s3", "s3"))) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, rel := refusing(t), brokenRelease("v2")
			for range 3 {
				require.Error(t, m.ask(rel))
				require.Error(t, m.ask(rel))
			}
			require.ErrorIs(t, m.ask(rel), ErrHeldBack)
			require.Equal(t, 2, rel.opened["app"])
			tt.after(t, m, rel)
			require.Error(t, m.ask(rel))
			assert.Equal(t, tt.tried, rel.opened["app"] > 2)
		})
	}
}

// A checksum file that was put right is followed at once.
func TestHeldBackAnotherChecksumFile(t *testing.T) {
	m, rel := refusing(t), brokenRelease("v2")
	for range 3 {
		require.Error(t, m.ask(rel))
	}
	require.ErrorIs(t, m.ask(rel), ErrHeldBack)
	rel.Lookup = releaseOf(t, "v2", "s2").Lookup
	require.NoError(t, m.ask(rel))
	assert.Equal(t, "s2", m.at())
}

// What is on disk already needs no download, and so is never held back.
func TestHeldBackNeedsADownload(t *testing.T) {
	m := refusing(t)
	require.NoError(t, m.ask(releaseOf(t, "s2", "s2")))
	require.NoError(t, m.ask(releaseOf(t, "s3", "s3")))
	slot := m.helper().target.slot(digests["s2"])
	require.NoError(t, os.Remove(slot)) // not there when it is downloaded, broken
	require.NoError(t, os.Remove(m.helper().target.rollback))
	rel := releaseOf(t, "s2", "s2")
	good := rel.Assets[0]
	rel.Assets[0] = rel.asset("s2", "app", append([]byte("x"), contents["s2"][1:]...))
	for range 3 {
		require.Error(t, m.ask(rel))
	}
	require.ErrorIs(t, m.ask(rel), ErrHeldBack)
	require.NoError(t, os.WriteFile(slot, contents["s2"], 0o755))
	plan, err := m.process().Plan(t.Context(), rel.Release)
	require.NoError(t, err)
	assert.Equal(t, Update, plan.Action)
	rel.Assets[0] = good
	require.NoError(t, m.ask(rel))
	assert.Equal(t, "s2", m.at())
}

// Temporary and local errors, and a cancelled download, are never held back.
func TestHeldBackIsForRefusals(t *testing.T) {
	for name, open := range map[string]func(ctx context.Context, cancel func()) (Body, error){
		"the network": func(context.Context, func()) (Body, error) { return Body{}, ErrNetwork },
		"a limit":     func(context.Context, func()) (Body, error) { return Body{}, &RateLimitError{Host: "h"} },
		"a broken body": func(context.Context, func()) (Body, error) {
			return Body{ReadCloser: io.NopCloser(io.MultiReader(bytes.NewReader([]byte("x")), broken{})), Size: -1}, nil
		},
		"no class": func(context.Context, func()) (Body, error) { return Body{}, errors.New("x") },
		"cancelled, with a broken body": func(_ context.Context, cancel func()) (Body, error) {
			cancel()
			return Body{ReadCloser: io.NopCloser(bytes.NewReader([]byte("x"))), Size: -1}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, rel := refusing(t), releaseOf(t, "s2", "s2")
			good := rel.Assets[0].Open
			for range 5 {
				ctx, cancel := context.WithCancel(t.Context())
				rel.Assets[0].Size = -1
				rel.Assets[0].Open = func(ctx context.Context, _ Position) (Body, error) { return open(ctx, cancel) }
				_, err := m.process().Apply(ctx, rel.Release)
				cancel()
				require.Error(t, err)
				require.NotErrorIs(t, err, ErrHeldBack)
			}
			assert.Empty(t, m.record().Refusals)
			rel.Assets[0].Open = good
			require.NoError(t, m.ask(rel))
		})
	}
}

// Whatever is refused after the download counts, and the record stays small.
func TestRefusalsAreBounded(t *testing.T) {
	m := refusing(t)
	for i := range 100 {
		rel := brokenRelease(fmt.Sprintf("v%d", i))
		rel.Assets[0].URL += strings.Repeat("/long", 200)
		require.ErrorIs(t, m.ask(rel), ErrDigestMismatch)
	}
	r := m.record()
	assert.Len(t, r.Refusals, maxRefusals)
	fi, err := os.Stat(m.helper().target.record())
	require.NoError(t, err)
	assert.Less(t, fi.Size(), int64(maxRecord))
	assert.Contains(t, r.Refusals[maxRefusals-1].URL, "/v99/", "the newest stay")
}

// That a refusal can't be remembered does not hide it.
func TestRefusalNotRemembered(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EROFS, syscall.EIO} {
		t.Run(errno.Error(), func(t *testing.T) {
			m, rel := refusing(t), brokenRelease("v2")
			sys, downloaded := m.sys, false
			m.sys = hooked(sys, func(op, path string) error {
				if downloaded && (op == "create" || op == "rename") {
					return &os.PathError{Op: op, Path: path, Err: errno}
				}
				return nil
			})
			open := rel.Assets[0].Open
			rel.Assets[0].Open = func(ctx context.Context, p Position) (Body, error) {
				b, err := open(ctx, p)
				b.ReadCloser = struct {
					io.Reader
					io.Closer
				}{b.ReadCloser, closerFunc(func() error { downloaded = true; return nil })}
				return b, err
			}
			for n := 1; n <= 3; n++ {
				downloaded = false
				err := m.ask(rel)
				require.ErrorIs(t, err, ErrDigestMismatch)
				assert.NotErrorIs(t, err, errno)
				assert.Equal(t, n, rel.opened["app"])
			}
			assert.Equal(t, "s1", m.at())
		})
	}
}

type closerFunc func() error

func (f closerFunc) Close() error { return f() }
