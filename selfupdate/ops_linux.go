package selfupdate

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// keptXattrs are the extended attributes that belong to the name rather than to
// the content: file capabilities, the SELinux label, the POSIX ACL. security.ima
// and security.evm are of the content, so the old ones would be wrong.
var keptXattrs = []string{"security.capability", "security.selinux", "system.posix_acl_access"}

func readMetadata(path string) (metadata, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return metadata{}, err
	}
	m := metadata{mode: modeOf(fi), xattrs: map[string]string{}}
	m.uid, m.gid = owner(fi)
	for _, name := range keptXattrs {
		v, err := getXattr(path, name)
		switch {
		case errors.Is(err, unix.ENODATA), errors.Is(err, unix.ENOTSUP):
		case err != nil:
			return metadata{}, &fs.PathError{Op: "getxattr " + name, Path: path, Err: err}
		default:
			m.xattrs[name] = v
		}
	}
	return m, nil
}

func getXattr(path, name string) (string, error) {
	buf := make([]byte, 256)
	for {
		n, err := unix.Lgetxattr(path, name, buf)
		if errors.Is(err, unix.ERANGE) && len(buf) < 1<<16 {
			buf = make([]byte, 1<<16) // XATTR_SIZE_MAX
			continue
		}
		if err != nil {
			return "", err
		}
		return string(buf[:n]), nil
	}
}

func (f osFile) setXattr(name, value string) error {
	buf := make([]byte, len(value)+1)
	if n, err := unix.Fgetxattr(int(f.Fd()), name, buf); err == nil && string(buf[:n]) == value {
		return nil // inherited from the directory; setting it may need a privilege that keeping it doesn't
	}
	return unix.Fsetxattr(int(f.Fd()), name, []byte(value), 0)
}

// dropACL removes what a default ACL of the directory gave the new file: the old
// one's own, if it has any, is set afterwards.
func (f osFile) dropACL() error {
	err := unix.Fremovexattr(int(f.Fd()), "system.posix_acl_access")
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}

// reserve makes a full disk show before the download. KEEP_SIZE: a file of the
// announced size with a hole at its end must never exist.
func (f osFile) reserve(size int64) error {
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG) {
		return err
	}
	return nil // not every file system can
}

func (f osFile) writeOut(off, n int64) {
	_ = unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE)
}

// readFlags finds out before the download what would stop the rename after it.
// On kernels before 5.8 a mount point shows only there, as EBUSY.
func readFlags(path string) (flags, error) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st)
	if errors.Is(err, unix.ENOSYS) {
		return flags{}, nil
	}
	if err != nil {
		return flags{}, &fs.PathError{Op: "statx", Path: path, Err: err}
	}
	return flags{
		immutable:  st.Attributes&unix.STATX_ATTR_IMMUTABLE != 0,
		appendOnly: st.Attributes&unix.STATX_ATTR_APPEND != 0,
		mountPoint: st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0,
	}, nil
}

func spaceOf(st *unix.Statfs_t) space {
	free := st.Bavail
	if os.Geteuid() == 0 {
		free = st.Bfree // root may use the reserve
	}
	s := space{bytes: free * uint64(st.Bsize), inodes: st.Ffree}
	if st.Files == 0 { // btrfs and others have no fixed number
		s.inodes = math.MaxUint64
	}
	return s
}

// ownExecutable returns the path under which this program was started. The
// kernel appends " (deleted)" when the name is gone or names another file by now,
// which os.Executable cuts off even from a file that is really named so.
func ownExecutable() (string, error) {
	name, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return os.Executable()
	}
	self, err1 := os.Stat("/proc/self/exe")
	there, err2 := os.Lstat(name)
	if err1 == nil && err2 == nil && os.SameFile(self, there) {
		return name, nil
	}
	return os.Executable()
}

// ownFile returns the file that this process runs, whatever its name is now.
func ownFile() (fs.FileInfo, error) { return os.Stat("/proc/self/exe") }

// monotonic is CLOCK_MONOTONIC, which all processes of one boot share.
func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// syncDir makes the names in a directory durable. Some network file systems
// can't sync a directory and say EINVAL: they have nothing better to offer.
// Without os.Open, which makes five system calls more: this is in every start.
func syncDir(path string) error {
	fd, err := untilDone(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	_, err = untilDone(func() (int, error) { return 0, unix.Fsync(fd) })
	_ = unix.Close(fd) // opened for reading: nothing is lost by it
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTSUP) {
		return &fs.PathError{Op: "sync", Path: path, Err: err}
	}
	return nil
}

// untilDone repeats a call that a signal interrupted.
func untilDone(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
