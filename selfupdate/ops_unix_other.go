//go:build unix && !linux

package selfupdate

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func readMetadata(path string) (metadata, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return metadata{}, err
	}
	m := metadata{mode: modeOf(fi)}
	m.uid, m.gid = owner(fi)
	return m, nil
}

func (f osFile) setXattr(name, value string) error { return unix.ENOTSUP }
func (f osFile) dropACL() error                    { return nil }
func (f osFile) reserve(size int64) error          { return nil }
func (f osFile) writeOut(off, n int64)             {}

// readFlags knows of no flags here: what they stop shows at the rename.
func readFlags(path string) (flags, error) {
	_, err := os.Lstat(path)
	return flags{}, err
}

func ownExecutable() (string, error) { return os.Executable() }

// ownFile returns the file at the path that this process was started from: a
// guess after that path was replaced, since there is no /proc/self/exe.
func ownFile() (fs.FileInfo, error) { return nil, syscall.ENOTSUP }

// syncDir makes the names in a directory durable. Some network file systems
// can't sync a directory and say EINVAL: they have nothing better to offer.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	err = d.Sync()
	_ = d.Close() // opened for reading: nothing is lost by it
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}
