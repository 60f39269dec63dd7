package selfupdate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hooked returns sys with hook before every operation: its error is the
// operation's, which then does not happen.
func hooked(sys ops, hook func(op, path string) error) ops {
	h := sys
	open := func(op string, f func(string) (file, error)) func(string) (file, error) {
		return func(p string) (file, error) {
			if err := hook(op, p); err != nil {
				return nil, err
			}
			inner, err := f(p)
			if err != nil {
				return nil, err
			}
			return &hookedFile{inner, hook}, nil
		}
	}
	two := func(op string, f func(string, string) error) func(string, string) error {
		return func(a, b string) error {
			if err := hook(op, b); err != nil {
				return err
			}
			return f(a, b)
		}
	}
	one := func(op string, f func(string) error) func(string) error {
		return func(p string) error {
			if err := hook(op, p); err != nil {
				return err
			}
			return f(p)
		}
	}
	h.create, h.open = open("create", sys.create), open("open", sys.open)
	h.link, h.rename, h.commit = two("link", sys.link), two("rename", sys.rename), two("commit", sys.commit)
	h.remove, h.mkdir, h.syncDir = one("remove", sys.remove), one("mkdir", sys.mkdir), one("syncDir", sys.syncDir)
	h.readDir = func(p string) ([]string, error) {
		if err := hook("readDir", p); err != nil {
			return nil, err
		}
		return sys.readDir(p)
	}
	h.lock = func(p string) (func(), error) {
		if err := hook("lock", p); err != nil {
			return nil, err
		}
		return sys.lock(p)
	}
	h.metadata = func(p string) (metadata, error) {
		if err := hook("metadata", p); err != nil {
			return metadata{}, err
		}
		return sys.metadata(p)
	}
	h.space = func(p string) (space, error) {
		if err := hook("space", p); err != nil {
			return space{}, err
		}
		return sys.space(p)
	}
	return h
}

type hookedFile struct {
	file
	hook func(op, path string) error
}

func (f *hookedFile) Write(p []byte) (int, error) {
	if err := f.hook("write", f.Name()); err != nil {
		return 0, err
	}
	return f.file.Write(p)
}

func (f *hookedFile) Read(p []byte) (int, error) {
	if err := f.hook("read", f.Name()); err != nil {
		return 0, err
	}
	return f.file.Read(p)
}

func (f *hookedFile) Sync() error {
	if err := f.hook("sync", f.Name()); err != nil {
		return err
	}
	return f.file.Sync()
}

func (f *hookedFile) Chmod(m fs.FileMode) error {
	if err := f.hook("chmod", f.Name()); err != nil {
		return err
	}
	return f.file.Chmod(m)
}

func (f *hookedFile) reserve(n int64) error {
	if err := f.hook("reserve", f.Name()); err != nil {
		return err
	}
	return f.file.reserve(n)
}

func (f *hookedFile) Close() error { // the descriptor goes all the same
	return errors.Join(f.file.Close(), f.hook("close", f.Name()))
}

// A scenario is one operation on a target at v1 with an older program before it.
type scenario struct {
	name  string
	setup func(t *testing.T, path string)
	do    func(u *Updater, ctx context.Context, rel Release) error
}

var scenarios = []scenario{
	{"first update", func(*testing.T, string) {}, applyRelease},
	{"update with a record", func(t *testing.T, path string) {
		require.NoError(t, applyRelease(updater(t, path), t.Context(), releaseOf(t, "s3", "s3").Release))
		require.NoError(t, applyRelease(updater(t, path), t.Context(), releaseOf(t, "s1", "s1").Release))
	}, applyRelease},
	{"rollback", func(t *testing.T, path string) {
		copyProgram(t, "s2", path)
		require.NoError(t, applyRelease(updater(t, path), t.Context(), releaseOf(t, "s1", "s1").Release))
	}, func(u *Updater, ctx context.Context, _ Release) error {
		_, err := u.Rollback(ctx, RollbackOptions{Reason: "test"})
		return err
	}},
}

func applyRelease(u *Updater, ctx context.Context, rel Release) error {
	_, err := u.Apply(ctx, rel)
	return err
}

// stopped is a run of s in which the hook decides what happens at each operation.
func (s scenario) run(t *testing.T, path string, hook func(n int, op, path string) error) (n int, err error) {
	t.Helper()
	sys := hooked(system(), func(op, p string) error {
		n++
		return hook(n, op, p)
	})
	u, err := newUpdater(Config{Target: path, Trust: UnsignedChecksum("test")}, sys)
	require.NoError(t, err)
	return n, s.do(u, t.Context(), releaseOf(t, "s2", "s2").Release)
}

// TestKilledAnywhere stops the process, as kill -9 does, before each of its
// operations in turn: none of the later ones happens. Whatever is left, the target
// is a whole program at every instant and the next run ends where it should.
func TestKilledAnywhere(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			points := 0
			for at := 1; ; at++ {
				path := installedIn(t, memory(t), "s1")
				s.setup(t, path)
				reached := false
				_, _ = s.run(t, path, func(n int, op, p string) error {
					if n >= at {
						reached = true
						return errors.New("killed")
					}
					return nil
				})
				name := fmt.Sprintf("killed at operation %d", at)
				require.Contains(t, []string{"s1", "s2"}, whole(t, path), name)
				recovers(t, path, name)
				_ = os.RemoveAll(filepath.Dir(path))
				if !reached {
					break
				}
				points++
			}
			t.Logf("%d points, 0 broken", points)
			assert.Greater(t, points, 20)
		})
	}
}

// memory returns a directory where fsync costs nothing: these tests do many.
func memory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "selfupdate-test-")
	if err != nil {
		return t.TempDir()
	}
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// whole returns which program the target is, by its content.
func whole(t testing.TB, path string) string {
	t.Helper()
	got := content256(t, path)
	for name, d := range digests {
		if got == d {
			return name
		}
	}
	return "broken"
}

// recovers makes sure that after a fault an update and a way back still work.
func recovers(t *testing.T, path, name string) {
	t.Helper()
	family := whole(t, path)[:1] // v1 or s1
	v1, v2 := family+"1", family+"2"
	u := updater(t, path)
	_, err := u.Apply(t.Context(), releaseOf(t, v2, v2).Release)
	st, serr := u.Status()
	require.NoError(t, serr, name)
	if errors.Is(err, ErrRejected) { // the rollback that was interrupted is finished, and v1 rejected
		t.Fatal("v2 was never rolled back", name)
	}
	require.NoError(t, err, name)
	require.Equal(t, v2, whole(t, path), name)
	require.False(t, st.Unfinished, name)
	clean(t, path, name)
	if len(st.Previous) == 0 { // rolled back to the first program there was
		return
	}
	_, err = u.Rollback(t.Context(), RollbackOptions{})
	require.NoError(t, err, name)
	require.Equal(t, v1, whole(t, path), name)
	_, err = u.Apply(t.Context(), releaseOf(t, v2, v2).Release)
	require.ErrorIs(t, err, ErrRejected, name)
	clean(t, path, name)
}

// clean wants exactly the files that the record names.
func clean(t *testing.T, path, name string) {
	t.Helper()
	dir := filepath.Dir(path)
	r, err := updater(t, path).target.read()
	require.NoError(t, err, name)
	want := []string{"app", ".app.d", ".app.d/slots", ".app.d/state.json"}
	for _, d := range r.slots() {
		want = append(want, ".app.d/slots/"+d.Hex())
	}
	var got []string
	for _, p := range listing(t, dir) {
		if p != ".app.rollback" {
			got = append(got, p)
		}
	}
	if r.Current != nil { // the current program has a slot once something was made of it
		if _, err := os.Lstat(filepath.Join(dir, ".app.d/slots", r.Current.SHA256.Hex())); err != nil {
			got = append(got, ".app.d/slots/"+r.Current.SHA256.Hex())
		}
	}
	assert.ElementsMatch(t, want, got, name)
}

// TestEachOperationFails lets each operation in turn fail once, as a sick disk or
// a full one does: the error says what is on disk, and it is so.
func TestEachOperationFails(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EIO, syscall.ENOSPC, syscall.EROFS} {
		for _, s := range scenarios {
			t.Run(s.name+" "+errno.Error(), func(t *testing.T) {
				t.Parallel()
				for at := 1; ; at++ {
					path := installedIn(t, memory(t), "s1")
					s.setup(t, path)
					failedOp := ""
					_, err := s.run(t, path, func(n int, op, p string) error {
						if n == at {
							failedOp = op + " " + filepath.Base(p)
							return &fs.PathError{Op: op, Path: p, Err: errno}
						}
						return nil
					})
					name := fmt.Sprintf("operation %d (%s) fails", at, failedOp)
					tells(t, path, err, name)
					if err != nil && !strings.HasPrefix(failedOp, "remove") && !strings.HasPrefix(failedOp, "readDir") {
						tidy(t, path, name)
					}
					recovers(t, path, name)
					_ = os.RemoveAll(filepath.Dir(path))
					if failedOp == "" {
						require.NoError(t, err)
						break
					}
				}
			})
		}
	}
}

// tells wants the target to be what the error says.
func tells(t *testing.T, path string, err error, name string) {
	t.Helper()
	var e *Error
	switch {
	case err == nil:
		assert.Equal(t, "s2", whole(t, path), name)
	case errors.As(err, &e) && e.State != Unchanged:
		assert.Equal(t, "s2", whole(t, path), "%s: %v", name, err)
	default:
		assert.Equal(t, "s1", whole(t, path), "%s: %v", name, err)
	}
}

// tidy wants nothing half-made after an error.
func tidy(t *testing.T, path, name string) {
	t.Helper()
	for _, p := range listing(t, filepath.Dir(path)) {
		assert.NotContains(t, p, ".dl-", name)
		assert.NotContains(t, p, ".tmp-", name)
		assert.NotContains(t, p, probePrefix, name)
	}
}
