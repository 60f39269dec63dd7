package selfupdate

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// The target's path has no symbolic link in it once it is resolved, so one that is
// there later was planted: whoever may write to a directory above would have the
// update, perhaps root's, change files elsewhere. What changes names therefore does
// so relative to a directory that was opened without following any.

// pinned returns sys with the operations that change names made so. Reading needs no
// such care: nothing that is read is believed without its digest or its owner.
func pinned(sys ops) ops {
	sys.create, sys.mkdir, sys.remove = createAt, mkdirAt, removeAt
	sys.link = func(from, to string) error { return two("link", from, to, linkAt) }
	sys.rename = func(from, to string) error { return two("rename", from, to, unix.Renameat) }
	sys.commit = sys.rename
	return sys
}

// at calls do with the directory that path is in and the name there.
func at(op, path string, do func(dir int, name string) error) error {
	dir, err := openDir(filepath.Dir(path))
	if err == nil {
		err = do(dir, filepath.Base(path))
		_ = unix.Close(dir) // nothing was written through it
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: path, Err: err}
	}
	return nil
}

// openDir follows no symbolic link in any part of path: ELOOP. Before Linux 5.6, and
// where an old seccomp profile does not know the call, in its last part only.
func openDir(path string) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	dir, err := untilDone(func() (int, error) { return unix.Openat2(unix.AT_FDCWD, path, &how) })
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return untilDone(func() (int, error) {
			return unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		})
	}
	return dir, err
}

func two(op, from, to string, do func(fromDir int, from string, toDir int, to string) error) error {
	failure := func(err error) error { return &os.LinkError{Op: op, Old: from, New: to, Err: err} }
	a, err := openDir(filepath.Dir(from))
	if err != nil {
		return failure(err)
	}
	defer func() { _ = unix.Close(a) }()
	b, err := openDir(filepath.Dir(to))
	if err != nil {
		return failure(err)
	}
	defer func() { _ = unix.Close(b) }()
	if err := do(a, filepath.Base(from), b, filepath.Base(to)); err != nil {
		return failure(err)
	}
	return nil
}

func linkAt(fromDir int, from string, toDir int, to string) error {
	return unix.Linkat(fromDir, from, toDir, to, 0)
}

func createAt(path string) (file, error) {
	var f osFile
	err := at("open", path, func(dir int, name string) error {
		fd, err := openNew(dir, name)
		if err == nil {
			f = osFile{File: os.NewFile(uintptr(fd), path), writer: true, heir: heirOf(dir)}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

func openNew(dir int, name string) (int, error) {
	return untilDone(func() (int, error) {
		return unix.Openat(dir, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	})
}

// openLock makes the file only as a new one: what is there already may be another
// name of somebody's file, which must not be given away.
func openLock(path string) (*os.File, error) {
	var f *os.File
	err := at("open", path, func(dir int, name string) error {
		fd, err := openNew(dir, name)
		if err == nil {
			heirOf(dir).inherit(fd)
		} else if errors.Is(err, unix.EEXIST) {
			fd, err = untilDone(func() (int, error) {
				return unix.Openat(dir, name, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			})
		}
		if err == nil {
			f = os.NewFile(uintptr(fd), path)
		}
		return err
	})
	return f, err
}

// removeAt removes a file or an empty directory, as os.Remove does.
func removeAt(path string) error {
	return unless(at("remove", path, func(dir int, name string) error {
		err := unix.Unlinkat(dir, name, 0)
		if errors.Is(err, unix.EISDIR) {
			return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
		}
		return err
	}), fs.ErrNotExist)
}

func mkdirAt(path string) error {
	return unless(at("mkdir", path, func(dir int, name string) error {
		if err := unix.Mkdirat(dir, name, 0o700); err != nil {
			return err
		}
		if h := heirOf(dir); h.uid > 0 {
			h.inheritDir(dir, name)
		}
		return nil
	}), fs.ErrExist)
}

// heirOf returns who owns a directory, for root. An owner can put files of its own
// there anyway, so nothing is given that it has not: as long as it is that very
// directory, and a new file.
func heirOf(dir int) heir {
	var st unix.Stat_t
	if euid() != 0 || unix.Fstat(dir, &st) != nil {
		return heir{}
	}
	return heir{int(st.Uid), int(st.Gid)}
}

// inherit gives a new file away. Where that can't be, it stays root's.
func (h heir) inherit(fd int) {
	if h.uid > 0 {
		_ = unix.Fchown(fd, h.uid, h.gid)
	}
}

// inheritDir gives the new directory away, unless its parent's owner, who is
// not trusted, has put another directory of root's in its place: that would not be empty.
func (h heir) inheritDir(parent int, name string) {
	fd, err := untilDone(func() (int, error) {
		return unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return
	}
	d := os.NewFile(uintptr(fd), name)
	defer func() { _ = d.Close() }()
	if names, err := d.Readdirnames(1); len(names) == 0 && errors.Is(err, io.EOF) {
		h.inherit(fd)
	}
}
