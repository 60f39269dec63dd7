package selfupdate

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	mselfupdate "github.com/minio/selfupdate"
	"golang.org/x/sys/windows"
)

const (
	noFollow   = 0
	nonBlock   = 0
	keepsModes = false // a mode is one read-only bit here
)

var errHeld = errors.New("lock is held")

// lockFile takes LockFileEx on the file at path, which ends with the process.
func lockFile(path string) (func(), error) {
	f, err := openLock(path)
	if err != nil {
		return nil, err
	}
	const whole = math.MaxUint32
	err = windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, whole, whole, new(windows.Overlapped))
	if err != nil {
		_ = f.Close()
		if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
			return nil, errHeld
		}
		return nil, &fs.PathError{Op: "LockFileEx", Path: path, Err: err}
	}
	return func() { _ = f.Close() }, nil
}

// syncDir does nothing: Windows has no such call, NTFS journals its names.
func syncDir(string) error { return nil }

// commit renames the running program aside (Windows lets nobody overwrite it),
// moves the new one in and hides the old one, which goes at the next update. There
// is an instant at which target names nothing.
func commit(from, target string) error {
	dir, name := filepath.Split(target)
	staged := filepath.Join(dir, "."+name+".new") // where minio/selfupdate expects it
	if err := os.Remove(staged); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := retryBusy(func() error { return os.Rename(from, staged) }); err != nil {
		return err
	}
	if _, err := os.Lstat(target); errors.Is(err, fs.ErrNotExist) {
		return retryBusy(func() error { return os.Rename(staged, target) })
	}
	err := retryBusy(func() error { return mselfupdate.CommitBinary(mselfupdate.Options{TargetPath: target}) })
	if err != nil {
		return join(err, mselfupdate.RollbackError(err), os.Remove(staged))
	}
	return nil
}

// retryBusy tries again while a virus scanner holds a new executable.
func retryBusy(f func() error) error {
	var err error
	for wait := 10 * time.Millisecond; wait < 2*time.Second; wait *= 2 {
		err = f()
		if !errors.Is(err, windows.ERROR_ACCESS_DENIED) && !errors.Is(err, windows.ERROR_SHARING_VIOLATION) {
			return err
		}
		time.Sleep(wait)
	}
	return err
}

func device(fi fs.FileInfo) uint64                 { return 0 }
func inode(fi fs.FileInfo) uint64                  { return 0 }
func owner(fi fs.FileInfo) (uid, gid int)          { return -1, -1 }
func (f osFile) setXattr(name, value string) error { return errors.ErrUnsupported }
func (f osFile) dropACL() error                    { return nil }
func (f osFile) reserve(size int64) error          { return nil }
func (f osFile) writeOut(off, n int64)             {}

func readMetadata(path string) (metadata, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return metadata{}, err
	}
	return metadata{mode: modeOf(fi), uid: -1, gid: -1}, nil
}

func readFlags(path string) (flags, error) {
	_, err := os.Lstat(path)
	return flags{}, err
}

func readSpace(dir string) (space, error) {
	p, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return space{}, err
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(p, &free, nil, nil); err != nil {
		return space{}, &fs.PathError{Op: "GetDiskFreeSpaceEx", Path: dir, Err: err}
	}
	return space{bytes: free, inodes: math.MaxUint64}, nil
}

func ownExecutable() (string, error) { return os.Executable() }

func ownFile() (fs.FileInfo, error) { return nil, errors.ErrUnsupported }

var causes = []struct {
	errno    error
	sentinel error
	advice   string
}{
	{windows.ERROR_DISK_FULL, ErrNoSpace, "free some space"},
	{windows.ERROR_HANDLE_DISK_FULL, ErrNoSpace, "free some space"},
	{windows.ERROR_WRITE_PROTECT, ErrReadOnly, "the medium is write-protected"},
	{windows.ERROR_ACCESS_DENIED, ErrPermission, "replacing a file needs write permission for its directory"},
	{windows.ERROR_SHARING_VIOLATION, ErrPermission, "another program holds the file open"},
}

func noLinks(err error) bool {
	return errors.Is(err, windows.ERROR_INVALID_FUNCTION) || errors.Is(err, windows.ERROR_NOT_SUPPORTED) || errors.Is(err, windows.ERROR_ACCESS_DENIED)
}
