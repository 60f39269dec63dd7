package selfupdate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// What lies around the target, and who may change it. Each row is refused with a
// documented error or makes no difference; a victim's file is never touched.

// victim is somebody's directory and file that nothing here may change.
type victim struct {
	t    testing.TB
	dir  string
	file string
	was  []string
}

// newVictim returns one on the file system of dir, with the names that this package uses.
func newVictim(t testing.TB, dir string) *victim {
	t.Helper()
	v := &victim{t: t, dir: filepath.Join(dir, "victim")}
	v.file = filepath.Join(v.dir, "file")
	require.NoError(t, os.MkdirAll(filepath.Join(v.dir, "slots"), 0o755))
	for _, name := range []string{"file", "state.json", "state.lock", "lock", "app", "helper", ".tmp-left", "slots/file", "slots/.dl-left", ".selfupdate-probe-left"} {
		require.NoError(t, os.WriteFile(filepath.Join(v.dir, name), []byte("precious "+name), 0o640))
	}
	v.was = v.look()
	return v
}

// look returns everything that could be changed, but for the number of links.
func (v *victim) look() (all []string) {
	v.t.Helper()
	require.NoError(v.t, filepath.WalkDir(v.dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		uid, gid := owner(fi)
		var data []byte
		if fi.Mode().IsRegular() {
			if data, err = os.ReadFile(p); err != nil {
				return err
			}
		}
		all = append(all, fmt.Sprintf("%s %v %d:%d %q", p, fi.Mode(), uid, gid, data))
		return nil
	}))
	return all
}

func (v *victim) untouched(name string) { v.t.Helper(); require.Equal(v.t, v.was, v.look(), name) }

// plants are what somebody could put at a name that is ours.
var plants = []struct {
	name string
	put  func(t testing.TB, path string, v *victim)
}{
	{"nothing", func(testing.TB, string, *victim) {}}, // the control
	{"a link to a file", func(t testing.TB, p string, v *victim) { require.NoError(t, os.Symlink(v.file, p)) }},
	{"a link to a directory", func(t testing.TB, p string, v *victim) { require.NoError(t, os.Symlink(v.dir, p)) }},
	{"a link to nothing", func(t testing.TB, p string, v *victim) { require.NoError(t, os.Symlink(v.dir+"/new", p)) }},
	{"a link to itself", func(t testing.TB, p string, v *victim) { require.NoError(t, os.Symlink(p, p)) }},
	{"a hard link", func(t testing.TB, p string, v *victim) { require.NoError(t, os.Link(v.file, p)) }},
	{"a pipe", plantPipe},
	{"a socket", func(t testing.TB, p string, v *victim) {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: "/proc/self/fd/" + fmt.Sprint(dirFD(t, filepath.Dir(p))) + "/" + filepath.Base(p)}) // a long path does not fit
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
	}},
	{"a device", func(t testing.TB, p string, v *victim) { // /dev/zero: it never ends
		require.NoError(t, unix.Mknod(p, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))))
	}},
	{"an empty directory", func(t testing.TB, p string, v *victim) { require.NoError(t, os.Mkdir(p, 0o700)) }},
	{"a directory with a file", func(t testing.TB, p string, v *victim) {
		require.NoError(t, os.Mkdir(p, 0o700))
		require.NoError(t, os.WriteFile(p+"/file", nil, 0o600))
	}},
	{"another user's file", func(t testing.TB, p string, v *victim) {
		require.NoError(t, os.WriteFile(p, []byte("planted"), 0o666))
		require.NoError(t, os.Chown(p, 65534, 65534))
	}},
	{"another user's directory", func(t testing.TB, p string, v *victim) {
		require.NoError(t, os.Mkdir(p, 0o777))
		require.NoError(t, os.Chown(p, 65534, 65534))
	}},
}

// plantPipe leaves both ends open: who reads it waits for ever.
func plantPipe(t testing.TB, path string, _ *victim) {
	require.NoError(t, unix.Mkfifo(path, 0o666))
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
}

func dirFD(t testing.TB, dir string) int {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// ours are the names beside and below the target that this package uses.
func ours() []string {
	return []string{
		".app.rollback", ".app.d", ".app.d/state.json", ".app.d/lock", ".app.d/state.lock", ".app.d/slots", ".app.d/helper", ".app.d/timer",
		".app.d/slots/" + digests["s1"].Hex(), ".app.d/slots/" + digests["s2"].Hex(), ".app.d/.tmp-guessed", ".app.d/slots/.dl-guessed", ".selfupdate-probe-guessed",
	}
}

// looking are the operations that change nothing, beside the table of those that do.
var looking = []operation{
	{"status", func(r *rig) func() error {
		r.must(r.applying("s2"))
		return func() error { _, err := r.process().Status(); return err }
	}, "s2", nil, false},
	{"plan", func(r *rig) func() error {
		r.must(r.applying("s2"))
		return func() error {
			_, err := r.process().Plan(r.t.Context(), releaseOf(r.t, "s3", "s3").Release)
			return unless(err, ErrOnTrial)
		}
	}, "s2", nil, false},
}

// within fails instead of hanging: what waits for a planted pipe waits for ever.
func within(t testing.TB, name string, do func() error) (err error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err = <-done:
	case <-time.After(2 * time.Minute):
		t.Fatal(name, ": it hangs")
	}
	return err
}

// sane wants an error that a caller can do something with.
func sane(t testing.TB, err error, name string) {
	t.Helper()
	if err == nil {
		return
	}
	known := []error{ErrUnsafeDir, ErrNotRegular, ErrDamaged, ErrNoPrevious, ErrChanged, ErrNoTarget, ErrExpired, ErrOnTrial, ErrNotRunning}
	require.True(t, slices.ContainsFunc(known, func(k error) bool { return errors.Is(err, k) }), "%s: %v", name, err)
	require.Equal(t, Local, ClassOf(err), "%s: %v", name, err)
}

// TestPlanted puts each of the plants at each of our names before each operation.
func TestPlanted(t *testing.T) {
	needRoot(t)
	for n, o := range slices.Concat(operations, looking) {
		if o.seam {
			continue
		}
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			for i, name := range ours() {
				for k, p := range plants {
					if !long() && (n+i+k)%6 != 0 {
						continue
					}
					t.Run(p.name+" at "+name, func(t *testing.T) { o.planted(t, name, p.name, p.put) })
				}
			}
		})
	}
}

func (o operation) planted(t *testing.T, name, kind string, put func(testing.TB, string, *victim)) {
	what := o.name + ": " + kind + " at " + name
	dir := memory(t)
	defer func() { _ = os.RemoveAll(dir) }()
	v := newVictim(t, dir)
	bin := filepath.Join(dir, "bin")
	require.NoError(t, os.Mkdir(bin, 0o755))
	r := rigAt(t, installedIn(t, bin, "s1"), system())
	do := o.prepare(r)
	path := filepath.Join(bin, name)
	if kind != "nothing" {
		require.NoError(t, os.RemoveAll(path))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	}
	put(t, path, v)
	err := within(t, what, do)
	v.untouched(what)
	r.unharmed(what)
	sane(t, err, what)
	if kind == "nothing" {
		require.NoError(t, err, what)
		require.Equal(t, o.want, r.at(), what)
	}
	for _, recovery := range []func() error{r.pres, r.ticks, r.rollsBack, r.begins} { // with the plant still there
		if _, err := os.Lstat(r.path); err == nil {
			err := within(t, what, recovery)
			v.untouched(what)
			r.unharmed(what)
			sane(t, err, what)
		}
	}
	if kind == "nothing" {
		return
	}
	fi, err := os.Lstat(path)
	ownDir := err == nil && (name == ".app.d" || name == ".app.d/slots") && fi.Mode() == fs.ModeDir|0o700
	if err == nil && !fi.Mode().IsRegular() && !ownDir || fi != nil && fi.Mode().IsRegular() && (name == ".app.d" || name == ".app.d/slots") { // somebody takes it away
		require.NoError(t, os.RemoveAll(path))
	}
	r.updates(what)
	v.untouched(what)
}

// unharmed wants a whole program of ours at the target, or none where that was so before.
func (r *rig) unharmed(what string) {
	r.t.Helper()
	if _, err := os.Lstat(r.path); errors.Is(err, fs.ErrNotExist) {
		require.True(r.t, r.gone, "%s: no program", what)
		return
	}
	fi, err := os.Lstat(r.path)
	require.NoError(r.t, err)
	require.True(r.t, fi.Mode().IsRegular(), what)
	require.NotEqual(r.t, "broken", r.at(), what)
}

// updates ends what trial there is, and wants an update to be possible afterwards.
func (r *rig) updates(what string) {
	r.t.Helper()
	if _, err := os.Lstat(r.path); err != nil {
		require.NoError(r.t, os.WriteFile(r.path, contents["s1"], 0o755))
	}
	_ = r.machine.helper().Confirm(r.t.Context(), ConfirmOptions{Force: true}) // of whatever is there
	u := r.process()
	u.cfg.Trial = nil
	_, err := u.Clear(r.t.Context(), ClearOptions{All: true})
	require.NoError(r.t, err, what)
	next := "s3"
	if r.at() == next {
		next = "s1"
	}
	_, err = u.Apply(r.t.Context(), releaseOf(r.t, next, next).Release)
	require.NoError(r.t, err, what)
	require.Equal(r.t, next, r.at(), what)
}

// As root beside a program of another user's, what is made belongs to that user,
// who could not read the record otherwise.
func TestRootBesideAnotherUsersProgram(t *testing.T) {
	needRoot(t)
	for _, uid := range []int{65534, 0} { // 0: the control
		t.Run(fmt.Sprint("uid ", uid), func(t *testing.T) {
			dir := memory(t)
			r := rigAt(t, installedIn(t, dir, "s1"), system())
			require.NoError(t, os.Chown(dir, uid, uid))
			require.NoError(t, os.Chown(r.path, uid, uid))
			r.must(r.applying("s2"))
			r.must(r.pres)
			r.must(r.ticks)
			r.must(func() error { return r.machine.helper().Confirm(t.Context(), ConfirmOptions{Force: true}) })
			r.must(r.rollsBack)
			seen := 0
			require.NoError(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				fi, err := d.Info()
				if err != nil {
					return err
				}
				seen++
				got, _ := owner(fi)
				require.Equal(t, uid, got, p)
				return nil
			}))
			require.Greater(t, seen, 8)
		})
	}
}

// What is already there is not given away: it may be another name of somebody's file.
func TestNothingOldIsGivenAway(t *testing.T) {
	needRoot(t)
	dir := memory(t)
	v := newVictim(t, dir)
	bin := filepath.Join(dir, "bin")
	require.NoError(t, os.Mkdir(bin, 0o755))
	r := rigAt(t, installedIn(t, bin, "s1"), system())
	r.must(r.applying("s2"))
	require.NoError(t, os.Chown(bin, 65534, 65534))
	require.NoError(t, os.Chown(bin+"/.app.d", 65534, 65534))
	for _, name := range []string{"lock", "state.lock"} { // each another file, or the one would lock the other
		require.NoError(t, os.Remove(bin+"/.app.d/"+name))
		require.NoError(t, os.Link(filepath.Join(v.dir, name), bin+"/.app.d/"+name))
	}
	r.must(r.pres)
	r.must(r.rollsBack)
	v.untouched("hard links of root's file")
	// A directory of root's that is moved to where a new one was just made is not empty.
	fd := dirFD(t, v.dir)
	heir{65534, 65534}.inheritDir(fd, "slots")
	v.untouched("a directory that is not empty")
	require.NoError(t, os.Mkdir(bin+"/new", 0o700))
	heir{65534, 65534}.inheritDir(dirFD(t, bin), "new") // the control
	fi, err := os.Lstat(bin + "/new")
	require.NoError(t, err)
	uid, _ := owner(fi)
	require.Equal(t, 65534, uid)
}

// A directory on the way to the target that is replaced by a link, before any
// operation, leads nothing to where that points.
func TestLinkPlantedBetweenOperations(t *testing.T) {
	needRoot(t)
	for _, below := range []string{"", "bin", "bin/.app.d", "bin/.app.d/slots"} {
		for _, name := range []string{"apply, with a history", "pre, starts exhausted", "confirm from outside, and cleaning", "rollback outside of a trial"} {
			o := operationOf(t, name)
			t.Run(name+" in "+cmpText(below, "the parent"), func(t *testing.T) {
				t.Parallel()
				for n := 0; ; n++ {
					what := fmt.Sprintf("%s, link at %q before operation %d", name, below, n)
					if o.linkedAt(t, below, n, what) {
						require.Greater(t, n, 5, what)
						return
					}
					if !long() {
						n += 4
					}
				}
			})
		}
	}
}

// linkedAt reports whether o was over before its nth operation.
func (o operation) linkedAt(t *testing.T, below string, n int, what string) bool {
	dir := memory(t)
	defer func() { _ = os.RemoveAll(dir) }()
	v := newVictim(t, dir)
	require.NoError(t, os.Mkdir(v.dir+"/bin", 0o755)) // for who takes the victim for the parent
	require.NoError(t, os.WriteFile(v.dir+"/bin/app", []byte("precious"), 0o755))
	v.was = v.look()
	parent := filepath.Join(dir, "parent")
	require.NoError(t, os.MkdirAll(parent+"/bin", 0o755))
	r := rigAt(t, installedIn(t, parent+"/bin", "s1"), system())
	do, at, over := o.prepare(r), filepath.Join(parent, below), true
	count := 0
	r.hook = func(string, string) error {
		if count++; count == n+1 {
			over = false
			require.NoError(t, os.Rename(at, dir+"/aside"))
			require.NoError(t, os.Symlink(v.dir, at))
		}
		return nil
	}
	err := within(t, what, do)
	r.hook = nil
	v.untouched(what)
	if over {
		require.NoError(t, err, what) // the control: nothing was planted
		return true
	}
	require.NoError(t, os.Remove(at))
	require.NoError(t, os.Rename(dir+"/aside", at))
	r.unharmed(what)
	r.updates(what)
	return false
}

// A state directory that somebody made in a directory where everybody may is not
// believed, whatever its record says.
func TestPlantedStateDirectory(t *testing.T) {
	needRoot(t)
	for _, tt := range []struct {
		name string
		mode os.FileMode
		uid  int
		want error
		at   string
	}{
		{"another user's, in a directory for all", 0o777 | os.ModeSticky, 65534, ErrUnsafeDir, "s1"},
		{"another user's", 0o755, 65534, ErrUnsafeDir, "s1"},
		{"root's", 0o755, 0, nil, "s2"}, // the control: its record is as good as any
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := memory(t)
			r := rigAt(t, installedIn(t, dir, "s1"), system())
			r.must(r.applying("s2"))
			r.undo() // s1 is there, and the record says that s2 should be
			require.Equal(t, "s1", r.at())
			require.NoError(t, os.Chmod(dir, tt.mode))
			require.NoError(t, os.Chown(dir+"/.app.d", tt.uid, tt.uid))
			_, err := r.process().Status()
			require.ErrorIs(t, err, tt.want)
			require.ErrorIs(t, r.ticks(), tt.want)
			require.ErrorIs(t, r.pres(), tt.want)
			require.Equal(t, tt.at, r.at())
			if tt.want == nil {
				return
			}
			require.ErrorIs(t, r.begins(), tt.want)
			require.ErrorIs(t, r.machine.helper().Post(t.Context(), Ending{}), tt.want)
			require.ErrorIs(t, r.machine.helper().Confirm(t.Context(), ConfirmOptions{Force: true}), tt.want)
			require.ErrorIs(t, r.rollsBack(), tt.want)
			require.Equal(t, "s1", r.at())
		})
	}
}

// Another user gets at nothing that is staged, neither by its name nor through the
// updater's descriptors; root does, so the attempts are real ones.
func TestStagedFileOfAnotherUser(t *testing.T) {
	needRoot(t)
	path := installed(t, "v1")
	for dir := filepath.Dir(path); dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		require.NoError(t, os.Chmod(dir, 0o755))
	}
	tries := 0
	attack := func(staged string) {
		for _, attempt := range []string{
			"exec 3<>" + staged, "cat " + staged, "ln " + staged + " /tmp/stolen-$$", "mv " + staged + " /tmp/stolen-$$", "rm -f " + staged, "chmod 777 " + staged,
			"ls " + filepath.Dir(staged), "touch " + filepath.Dir(path) + "/.app.rollback", "cp /bin/true " + path,
			fmt.Sprintf("for f in /proc/%d/fd/*; do echo x 2>&1 >>$f && exit 0; done; exit 1", os.Getpid()),
			fmt.Sprintf("ls /proc/%d/fd/", os.Getpid()),
		} {
			cmd := exec.Command("/bin/sh", "-c", attempt)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			out, err := cmd.CombinedOutput()
			require.Error(t, err, "%s: %s", attempt, out)
			tries++
		}
		require.NoError(t, exec.Command("/bin/sh", "-c", "exec 3<>"+staged).Run(), "the control: root")
	}
	u := updater(t, path, func(c *Config) {
		c.Probe = func(_ context.Context, staged string) error { attack(staged); return nil }
	})
	_, err := u.Apply(t.Context(), releaseOf(t, "v2", "v2").Release)
	require.NoError(t, err)
	require.Positive(t, tries)
	require.Equal(t, "v2", run(t, path))
}
