//go:build unix

package selfupdate

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	noFollow   = unix.O_NOFOLLOW
	nonBlock   = unix.O_NONBLOCK
	keepsModes = true
)

// errHeld is returned by ops.lock when another open file holds the lock.
var errHeld = errors.New("lock is held")

// lockFile takes flock(2) on the file at path, which it makes when needed and
// never removes: a lock file that comes and goes can be held twice. The lock ends
// with the process at the latest.
func lockFile(path string) (func(), error) {
	f, err := openLock(path)
	if err != nil {
		return nil, err
	}
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		_ = f.Close()
		return nil, join(err, &fs.PathError{Op: "open", Path: path, Err: errNoFile})
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		_ = f.Close()
		if err == unix.EWOULDBLOCK {
			return nil, errHeld
		}
		return nil, &fs.PathError{Op: "flock", Path: path, Err: err}
	}
	return func() {
		// Closing is not enough: a child that another goroutine is about to start
		// has the lock too, between its fork and its exec.
		_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
		_ = f.Close()
	}, nil
}

// commit puts the file from at the target in one step: at every instant the
// target names the old file or the new one, whole.
func commit(from, target string) error { return os.Rename(from, target) }

// inode returns the number that tells a file from its successor under one name.
func inode(fi fs.FileInfo) uint64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Ino)
	}
	return 0
}

// device returns the file system that a file is on.
func device(fi fs.FileInfo) uint64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev)
	}
	return 0
}

// owner returns the owner of a file, -1 when unknown.
func owner(fi fs.FileInfo) (uid, gid int) {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid), int(st.Gid)
	}
	return -1, -1
}

func readSpace(dir string) (space, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return space{}, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return spaceOf(&st), nil
}

// causes maps what the system says to what a person can do about it.
var causes = []struct {
	errno    error
	sentinel error
	advice   string
}{
	{unix.EROFS, ErrReadOnly, "mount it writable; under systemd's ProtectSystem= list the directory, not the file, in ReadWritePaths="},
	{unix.ENOSPC, ErrNoSpace, "free some space or inodes"},
	{unix.EDQUOT, ErrNoSpace, "the quota is used up"},
	{unix.EBUSY, ErrMountPoint, "mount its directory instead"},
	{unix.EXDEV, ErrMountPoint, "the file and its directory are on different file systems: mount the directory instead"},
	{unix.EACCES, ErrPermission, "this user may not; replacing a file needs write permission for its directory"},
	{unix.EPERM, ErrPermission, "not allowed for this user, or the file or directory is immutable (lsattr)"},
	{unix.ELOOP, ErrUnsafeDir, "a symbolic link is where none may be"},
	{unix.EISDIR, ErrUnsafeDir, "a directory is where a file should be"},
	{unix.ENOTDIR, ErrUnsafeDir, "a file is where a directory should be"},
	{unix.ENXIO, ErrUnsafeDir, "a socket is where a file should be"},
}

// noLinks reports whether err says that hard links can't be made here, so that a
// copy has to serve: FAT and the like, fs.protected_hardlinks, a link count at its limit.
func noLinks(err error) bool {
	for _, e := range []error{unix.EPERM, unix.EACCES, unix.ENOTSUP, unix.EOPNOTSUPP, unix.ENOSYS, unix.EMLINK} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
