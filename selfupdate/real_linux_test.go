package selfupdate

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// These tests meet the file system as it is: mounts, attributes, other users.
// They need root and fail without it: what is not run proves nothing.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test mounts file systems and changes owners: run it as root (sudo make test)")
	}
}

// mount mounts a file system of the test's own and takes it away again.
func mount(t *testing.T, source, dir, fstype string, flags uintptr, data string) {
	t.Helper()
	needRoot(t)
	require.NoError(t, unix.Mount(source, dir, fstype, flags, data))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

func tmpfs(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	mount(t, "tmpfs", dir, "tmpfs", 0, "mode=0755,"+options)
	return dir
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, out)
	return string(out)
}

// refusedEarly applies and wants want, before any request and with nothing changed.
func refusedEarly(t *testing.T, path string, want error, advice string) {
	t.Helper()
	rel := releaseOf(t, "v2", "v2")
	before := listing(t, filepath.Dir(path))
	_, err := updater(t, path).Apply(t.Context(), rel.Release)
	require.ErrorIs(t, err, want)
	assert.Equal(t, Local, ClassOf(err))
	assert.Contains(t, err.Error(), advice)
	assert.Empty(t, rel.opened, "found out before any request")
	assert.Equal(t, before, listing(t, filepath.Dir(path)))
	assert.Equal(t, "v1", run(t, path))
	_, err = updater(t, path).Plan(t.Context(), rel.Release)
	require.ErrorIs(t, err, want, "the dry run says the same")
}

func TestReadOnlyFileSystem(t *testing.T) {
	dir := tmpfs(t, "size=64m")
	path := installedIn(t, dir, "v1")
	require.NoError(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	refusedEarly(t, path, ErrReadOnly, "ReadWritePaths")
}

func TestNothingToDoOnAReadOnlyFileSystem(t *testing.T) {
	dir := tmpfs(t, "size=64m")
	path := installedIn(t, dir, "v1")
	rel := releaseOf(t, "v2", "v2")
	_, err := updater(t, path).Apply(t.Context(), rel.Release)
	require.NoError(t, err)
	require.NoError(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	res, err := updater(t, path).Apply(t.Context(), rel.Release)
	require.NoError(t, err)
	assert.Equal(t, UpToDate, res.Outcome)
}

func TestTargetIsAMountPoint(t *testing.T) {
	needRoot(t)
	host := installed(t, "v1")
	path := installed(t, "v1")
	mount(t, host, path, "", unix.MS_BIND, "")
	refusedEarly(t, path, ErrMountPoint, "directory")
	assert.Equal(t, content256(t, programs["v1"]), content256(t, host))
}

// Kernels before 5.8 don't tell: there the rename does.
func TestTargetIsAMountPointThatDoesNotShow(t *testing.T) {
	needRoot(t)
	host := installed(t, "v1")
	path := installed(t, "v1")
	mount(t, host, path, "", unix.MS_BIND, "")
	sys := system()
	sys.flags = func(string) (flags, error) { return flags{}, nil }
	u, err := newUpdater(Config{Target: path, Trust: UnsignedChecksum("test")}, sys)
	require.NoError(t, err)
	_, err = u.Apply(t.Context(), releaseOf(t, "v2", "v2").Release)
	require.ErrorIs(t, err, ErrMountPoint)
	assert.Equal(t, "v1", run(t, path))
	for _, left := range listing(t, filepath.Dir(path)) {
		assert.NotContains(t, left, content256(t, programs["v2"]).Hex(), "no new slot remains")
		assert.NotContains(t, left, ".tmp-")
	}
}

func TestImmutable(t *testing.T) {
	needRoot(t)
	for _, attr := range []string{"i", "a"} {
		for _, what := range []string{"file", "directory"} {
			t.Run(attr+" "+what, func(t *testing.T) {
				path := installed(t, "v1")
				on := path
				if what == "directory" {
					on = filepath.Dir(path)
				}
				command(t, "chattr", "+"+attr, on)
				t.Cleanup(func() { command(t, "chattr", "-"+attr, on) })
				refusedEarly(t, path, ErrPermission, "chattr -"+attr)
			})
		}
	}
}

func TestFullFileSystem(t *testing.T) {
	size := statSize(t, programs["v1"])
	for _, tt := range []struct{ name, options string }{
		{"no space for the program", fmt.Sprintf("size=%d", size+size/2)},
		{"no inodes", "size=64m,nr_inodes=4"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			refusedEarly(t, installedIn(t, tmpfs(t, tt.options), "v1"), ErrNoSpace, "needed")
		})
	}
}

// The server does not say how much is coming.
func TestFileSystemFillsUp(t *testing.T) {
	size := statSize(t, programs["v1"])
	dir := tmpfs(t, fmt.Sprintf("size=%d", size+(1<<20)+(256<<10)))
	path := installedIn(t, dir, "v1")
	rel := releaseOf(t, "v2", "v2")
	open := rel.Assets[0].Open
	rel.Assets[0].Size = -1
	rel.Assets[0].Open = hideSize(open)
	for range 3 {
		_, err := updater(t, path).Apply(t.Context(), rel.Release)
		require.ErrorIs(t, err, ErrNoSpace)
		assert.Equal(t, []string{".app.d", ".app.d/slots", "app"}, sorted(listing(t, dir)), "nothing leaks")
	}
	assert.Equal(t, "v1", run(t, path))
}

func TestRollbackOnAFullFileSystem(t *testing.T) {
	dir := tmpfs(t, "size=64m")
	path := installedIn(t, dir, "v1")
	rel := releaseOf(t, "v2", "v2")
	_, err := updater(t, path).Apply(t.Context(), rel.Release)
	require.NoError(t, err)
	fill(t, dir)

	res, err := Rollback(t.Context(), RollbackOptions{Target: path, Reason: "crashes"})
	require.NoError(t, err)
	assert.Equal(t, RolledBack, res.Outcome)
	assert.Equal(t, "v1", run(t, path))
	st, err := ReadStatus(path, nil)
	require.NoError(t, err)
	require.Len(t, st.Rejected, 1)
	assert.Equal(t, content256(t, programs["v2"]), st.Rejected[0].SHA256)
	assert.Equal(t, content256(t, programs["v1"]), st.Current.SHA256)
}

func TestApplyWhenTheLastRecordDoesNotFit(t *testing.T) {
	dir := tmpfs(t, "size=64m")
	path := installedIn(t, dir, "v1")
	sys := system()
	commit := sys.commit
	sys.commit = func(from, to string) error {
		err := commit(from, to)
		fill(t, dir)
		return err
	}
	u, err := newUpdater(Config{Target: path, Trust: UnsignedChecksum("test")}, sys)
	require.NoError(t, err)
	rel := releaseOf(t, "v2", "v2")
	res, err := u.Apply(t.Context(), rel.Release)
	require.NoError(t, err)
	assert.Equal(t, Updated, res.Outcome)
	assert.Equal(t, "v2", run(t, path))
	st, err := u.Status()
	require.NoError(t, err)
	assert.Equal(t, "v2", st.Current.Version)
	assert.True(t, st.Unfinished)

	require.NoError(t, os.Remove(filepath.Join(dir, "fill")))
	res, err = updater(t, path).Apply(t.Context(), rel.Release)
	require.NoError(t, err)
	assert.Equal(t, UpToDate, res.Outcome)
	st, err = u.Status()
	require.NoError(t, err)
	assert.False(t, st.Unfinished)
	_, err = u.Rollback(t.Context(), RollbackOptions{})
	require.NoError(t, err)
	assert.Equal(t, "v1", run(t, path))
}

// fill leaves no byte on the file system.
func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "fill"))
	require.NoError(t, err)
	_, err = io.Copy(f, endless{})
	require.ErrorIs(t, err, syscall.ENOSPC)
	_ = f.Close()
}

func TestKeepsOwnerModeCapabilitiesAndACL(t *testing.T) {
	needRoot(t)
	path := installed(t, "v1")
	require.NoError(t, os.Chown(path, 1000, 1001))
	require.NoError(t, os.Chmod(path, 0o750|os.ModeSetuid))
	command(t, "setcap", "cap_net_admin=ep", path)
	want, err := readMetadata(path)
	require.NoError(t, err)
	require.NotEmpty(t, want.xattrs)

	u := updater(t, path)
	_, err = u.Apply(t.Context(), releaseOf(t, "v2", "v2").Release)
	require.NoError(t, err)
	got, err := readMetadata(path)
	require.NoError(t, err)
	assert.Equal(t, want, got)
	assert.Contains(t, command(t, "getcap", path), "cap_net_admin=ep")

	_, err = u.Rollback(t.Context(), RollbackOptions{KeepAllowed: true})
	require.NoError(t, err)
	got, err = readMetadata(path)
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

// acl is a POSIX ACL as the kernel has it in an extended attribute: the owner, uid
// 1000, the group, the mask and others.
func acl(user byte) string {
	entry := func(tag, perm byte, id uint32) []byte {
		return binary.LittleEndian.AppendUint32([]byte{tag, 0, perm, 0}, id)
	}
	const none = 0xffffffff
	return string(slices.Concat([]byte{2, 0, 0, 0},
		entry(1, 7, none), entry(2, user, 1000), entry(4, 5, none), entry(16, 7, none), entry(32, 5, none)))
}

// The ACL is the old file's: kept when it has one, and none that the directory hands down.
func TestKeepsTheACL(t *testing.T) {
	needRoot(t)
	for _, own := range []string{"", acl(7)} {
		path := installed(t, "v1")
		require.NoError(t, unix.Setxattr(filepath.Dir(path), "system.posix_acl_default", []byte(acl(6)), 0))
		if own != "" {
			require.NoError(t, unix.Setxattr(path, "system.posix_acl_access", []byte(own), 0))
		}
		want, err := readMetadata(path)
		require.NoError(t, err)
		_, err = updater(t, path).Apply(t.Context(), releaseOf(t, "v2", "v2").Release)
		require.NoError(t, err)
		got, err := readMetadata(path)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
}

func TestKeepsTheSELinuxLabel(t *testing.T) {
	needRoot(t)
	path := installed(t, "v1")
	const label = "system_u:object_r:bin_t:s0\x00"
	if err := unix.Setxattr(path, "security.selinux", []byte(label), 0); err != nil {
		t.Fatalf("this file system takes no label: %v", err)
	}
	_, err := updater(t, path).Apply(t.Context(), releaseOf(t, "v2", "v2").Release)
	require.NoError(t, err)
	got, err := getXattr(path, "security.selinux")
	require.NoError(t, err)
	assert.Equal(t, label, got)
}

// asUser runs this test binary as uid 1000 and returns its exit code and output.
func asUser(t *testing.T, args ...string) (int, string) {
	t.Helper()
	needRoot(t)
	exe := filepath.Join(t.TempDir(), "child")
	self, err := os.Executable()
	require.NoError(t, err)
	command(t, "cp", self, exe)
	for dir := filepath.Dir(exe); dir != "/"; dir = filepath.Dir(dir) { // the test's own directories are 0700
		if fi, err := os.Stat(dir); err == nil && strings.Contains(dir, "Test") {
			require.NoError(t, os.Chmod(dir, fi.Mode()|0o055))
		}
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join(args, "\n"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
	out, err := cmd.CombinedOutput()
	if _, ok := err.(*exec.ExitError); !ok {
		require.NoError(t, err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

func TestAnotherUser(t *testing.T) {
	needRoot(t)
	digest := content256(t, programs["v2"]).String()
	open := func(t *testing.T) string { // a directory that uid 1000 can reach
		dir := t.TempDir()
		require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
		return dir
	}
	t.Run("owns file and directory", func(t *testing.T) {
		dir := open(t)
		require.NoError(t, os.Chown(dir, 1000, 1000))
		path := installedIn(t, dir, "v1")
		require.NoError(t, os.Chown(path, 1000, 1000))
		code, out := asUser(t, "apply", path, programs["v2"], digest)
		require.Equal(t, 0, code, out)
		assert.Equal(t, "v2", run(t, path))
		code, out = asUser(t, "rollback", path)
		require.Equal(t, 0, code, out)
		assert.Equal(t, "v1", run(t, path))
	})
	t.Run("may write the file, not the directory", func(t *testing.T) {
		dir := open(t)
		path := installedIn(t, dir, "v1")
		require.NoError(t, os.Chmod(path, 0o777))
		require.NoError(t, os.Chmod(dir, 0o555))
		code, out := asUser(t, "apply", path, programs["v2"], digest)
		assert.Equal(t, 10+int(Local), code)
		assert.Contains(t, out, ErrPermission.Error())
		assert.Contains(t, out, dir, "the directory is named")
		assert.Equal(t, "v1", run(t, path))
		assert.Equal(t, []string{"app"}, listing(t, dir))
	})
	t.Run("owns the directory, not the file", func(t *testing.T) {
		dir := open(t)
		require.NoError(t, os.Chown(dir, 1000, 1000))
		path := installedIn(t, dir, "v1") // root's
		code, out := asUser(t, "apply", path, programs["v2"], digest)
		assert.Equal(t, 10+int(Local), code)
		assert.Contains(t, out, "belongs to 0:0")
		assert.Equal(t, "v1", run(t, path))
	})
}

func TestUnsafeDirectories(t *testing.T) {
	needRoot(t)
	t.Run("world-writable", func(t *testing.T) {
		path := installed(t, "v1")
		require.NoError(t, os.Chmod(filepath.Dir(path), 0o777))
		refusedEarly(t, path, ErrUnsafeDir, "everybody")
	})
	for name, plant := range map[string]func(t *testing.T, state string){
		"state directory is a link":        func(t *testing.T, s string) { require.NoError(t, os.Symlink(t.TempDir(), s)) },
		"state directory is a file":        func(t *testing.T, s string) { require.NoError(t, os.WriteFile(s, nil, 0o600)) },
		"state directory of another user":  func(t *testing.T, s string) { mkdirOf(t, s, 0o700, 1000) },
		"state directory others can write": func(t *testing.T, s string) { mkdirOf(t, s, 0o777, 0) },
		"slots are a link": func(t *testing.T, s string) {
			mkdirOf(t, s, 0o700, 0)
			require.NoError(t, os.Symlink(t.TempDir(), s+"/slots"))
		},
		"the record is a pipe": func(t *testing.T, s string) {
			mkdirOf(t, s, 0o700, 0)
			require.NoError(t, unix.Mkfifo(s+"/state.json", 0o600))
		},
		"the lock is a link to another file": func(t *testing.T, s string) {
			mkdirOf(t, s, 0o700, 0)
			require.NoError(t, os.Symlink("/etc/passwd", s+"/lock"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := installed(t, "v1")
			plant(t, filepath.Join(filepath.Dir(path), ".app.d"))
			rel := releaseOf(t, "v2", "v2")
			_, err := updater(t, path).Apply(t.Context(), rel.Release)
			require.ErrorIs(t, err, ErrUnsafeDir)
			assert.Empty(t, rel.opened)
			assert.Equal(t, "v1", run(t, path))
		})
	}
}

func mkdirOf(t *testing.T, dir string, mode os.FileMode, uid int) {
	t.Helper()
	require.NoError(t, os.Mkdir(dir, mode))
	require.NoError(t, os.Chmod(dir, mode))
	require.NoError(t, os.Chown(dir, uid, uid))
}

// A link planted at the name of the way back is replaced, not followed.
func TestPlantedRollbackLink(t *testing.T) {
	path := installed(t, "v1")
	victim := filepath.Join(t.TempDir(), "victim")
	require.NoError(t, os.WriteFile(victim, []byte("precious"), 0o600))
	require.NoError(t, os.Symlink(victim, filepath.Join(filepath.Dir(path), ".app.rollback")))
	_, err := updater(t, path).Apply(t.Context(), releaseOf(t, "v2", "v2").Release)
	require.NoError(t, err)
	got, err := os.ReadFile(victim)
	require.NoError(t, err)
	assert.Equal(t, "precious", string(got))
	assert.Equal(t, "v1", run(t, filepath.Join(filepath.Dir(path), ".app.rollback")))
}

// Where no hard link can be made, copies do, in the same order.
func TestWithoutHardLinks(t *testing.T) {
	path := installed(t, "v1")
	sys := system()
	sys.link = func(from, to string) error { return &os.LinkError{Op: "link", Old: from, New: to, Err: unix.EPERM} }
	for i, want := range []string{"v2", "v3", "v2"} {
		u, err := newUpdater(Config{Target: path, Trust: UnsignedChecksum("test")}, sys)
		require.NoError(t, err)
		if i < 2 {
			_, err = u.Apply(t.Context(), releaseOf(t, want, want).Release)
		} else {
			_, err = u.Rollback(t.Context(), RollbackOptions{})
		}
		require.NoError(t, err)
		assert.Equal(t, want, run(t, path))
		for _, p := range listing(t, filepath.Dir(path)) {
			assert.NotContains(t, p, ".tmp-")
		}
	}
}

// Nor is anything staged elsewhere: TMPDIR may be noexec and another file system.
func TestNoDescriptorOpenInHooks(t *testing.T) {
	tmp := t.TempDir()
	mount(t, "tmpfs", tmp, "tmpfs", unix.MS_NOEXEC, "size=64k")
	path := installed(t, "v1")
	t.Setenv("TMPDIR", tmp)
	probe := func(c *Config) {
		c.Probe = func(ctx context.Context, staged string) error {
			assert.Equal(t, "v2", run(t, staged), "it can be executed: no writer has it open")
			assert.True(t, strings.HasPrefix(staged, filepath.Dir(path)+"/.app.d/"), staged)
			fds, err := os.ReadDir("/proc/self/fd")
			require.NoError(t, err)
			for _, fd := range fds {
				to, _ := os.Readlink("/proc/self/fd/" + fd.Name())
				assert.NotEqual(t, staged, to)
			}
			return nil
		}
	}
	_, err := updater(t, path, probe).Apply(t.Context(), releaseOf(t, "v2", "v2").Release)
	require.NoError(t, err)
}

func statSize(t *testing.T, path string) int64 {
	t.Helper()
	fi, err := os.Stat(path)
	require.NoError(t, err)
	return fi.Size()
}

func hideSize(open func(context.Context, Position) (Body, error)) func(context.Context, Position) (Body, error) {
	return func(ctx context.Context, p Position) (Body, error) {
		b, err := open(ctx, p)
		b.Size = -1
		return b, err
	}
}

// TestNothingLeaks fails 60 updates after the download, at the digest and at the
// swap, and counts files and descriptors.
func TestNothingLeaks(t *testing.T) {
	path := installed(t, "v1")
	sys := system()
	sys.commit = func(string, string) error { return &os.LinkError{Op: "rename", Err: unix.EACCES} }
	once := func(i int) {
		u, err := newUpdater(Config{Target: path, Trust: UnsignedChecksum("test"), Refresh: true}, sys)
		require.NoError(t, err)
		rel := releaseOf(t, "v2", "v2")
		want := ErrPermission
		if i%2 == 0 {
			rel.Assets[0] = rel.asset("v2", "app", contents["v3"])
			want = ErrDigestMismatch
		}
		_, err = u.Apply(t.Context(), rel.Release)
		require.ErrorIs(t, err, want)
	}
	once(0)
	once(1)
	files, fds := listing(t, filepath.Dir(path)), descriptors(t)
	for i := range 60 {
		once(i)
	}
	assert.Equal(t, files, listing(t, filepath.Dir(path)))
	assert.Equal(t, fds, descriptors(t))
	assert.Equal(t, "v1", run(t, path))
}

func descriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(fds)
}

// When the swap fails and undoing its record does too, both causes are told.
func TestSwapAndUndoFail(t *testing.T) {
	path := installed(t, "v1")
	sys := system()
	sick := false
	sys.commit = func(string, string) error { sick = true; return unix.EBUSY }
	rename := sys.rename
	sys.rename = func(from, to string) error {
		if sick && filepath.Base(to) == "state.json" {
			return unix.EIO
		}
		return rename(from, to)
	}
	u, err := newUpdater(Config{Target: path, Trust: UnsignedChecksum("test")}, sys)
	require.NoError(t, err)
	_, err = u.Apply(t.Context(), releaseOf(t, "v2", "v2").Release)
	require.ErrorIs(t, err, ErrMountPoint)
	require.ErrorIs(t, err, unix.EIO)
	assert.Equal(t, "v1", run(t, path))
	recovers(t, path, "afterwards")
}
