package selfupdate

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"
)

// ops are all the file operations and the clock of this package, the one seam
// through which fault and power-cut tests run the real code. Paths are absolute.
type ops struct {
	create   func(path string) (file, error) // new, exclusive, no link followed, 0600
	open     func(path string) (file, error) // for reading, a regular file, no link followed
	link     func(from, to string) error
	rename   func(from, to string) error
	remove   func(path string) error // nil when it is gone already
	mkdir    func(path string) error // 0700; nil when it is there already
	syncDir  func(path string) error
	lstat    func(path string) (fs.FileInfo, error)
	stat     func(path string) (fs.FileInfo, error)
	readDir  func(path string) ([]string, error)
	readLink func(path string) (string, error)
	lock     func(path string) (release func(), err error) // errHeld when another holds it
	metadata func(path string) (metadata, error)
	flags    func(path string) (flags, error)
	space    func(dir string) (space, error)
	commit   func(from, target string) error // the swap: one rename, except on Windows
	now      func() time.Time                // for people; no decision depends on it
	mono     func() time.Duration            // monotonic; comparable between processes of one boot
	boot     func() string                   // another one after each boot; "" when unknown
	sleep    func(ctx context.Context, d time.Duration) error
}

// file is an open file of the seam.
type file interface {
	io.ReadWriteCloser
	io.ReaderAt
	Name() string
	Stat() (fs.FileInfo, error)
	Chmod(mode fs.FileMode) error
	Chown(uid, gid int) error
	inherit() // by root in a directory of another user's: gives that user the new file
	setXattr(name, value string) error
	dropACL() error           // one that was inherited from the directory
	reserve(size int64) error // disk space, without changing the file's size
	writeOut(off, n int64)    // starts to write that range to the disk; a hint
	Sync() error
}

// metadata is what an update keeps of the old file besides its name.
type metadata struct {
	mode     fs.FileMode // permissions, setuid, setgid, sticky
	uid, gid int         // -1: as they come
	xattrs   map[string]string
}

// flags are the properties of a file that stop a rename over it.
type flags struct{ immutable, appendOnly, mountPoint bool }

// space is what a file system has left for this process.
type space struct{ bytes, inodes uint64 }

// system returns the operations of the machine.
func system() ops {
	return pinned(ops{
		create:   func(p string) (file, error) { return openOS(p, os.O_RDWR|os.O_CREATE|os.O_EXCL|noFollow, true) },
		open:     openRegular,
		link:     os.Link,
		rename:   os.Rename,
		remove:   func(p string) error { return unless(os.Remove(p), fs.ErrNotExist) },
		mkdir:    func(p string) error { return unless(os.Mkdir(p, 0o700), fs.ErrExist) },
		syncDir:  syncDir,
		lstat:    os.Lstat,
		stat:     os.Stat,
		readDir:  readNames,
		readLink: os.Readlink,
		lock:     lockFile,
		metadata: readMetadata,
		flags:    readFlags,
		space:    readSpace,
		commit:   commit,
		now:      time.Now,
		mono:     monotonic,
		boot:     bootID,
		sleep:    sleep,
	})
}

type osFile struct {
	*os.File
	writer bool
	heir   heir
}

// heir is who gets what root makes in a directory of another user's: that
// directory's owner, whose program could not read its record otherwise. Zero: nobody.
type heir struct{ uid, gid int }

// inherit gives a new file away. Where that can't be, it stays root's.
func (f osFile) inherit() {
	if f.heir.uid > 0 {
		_ = f.Chown(f.heir.uid, f.heir.gid)
	}
}

func openOS(path string, flag int, writer bool) (file, error) {
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{File: f, writer: writer}, nil
}

// openRegular opens a file for reading. A pipe whose other end somebody holds open
// would block the first read for ever, and a device might never end.
func openRegular(path string) (file, error) {
	f, err := openOS(path, os.O_RDONLY|noFollow|nonBlock, false)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("%w: %v", errNoFile, fi.Mode().Type())}
	}
	if err != nil {
		_ = f.Close() // it was only read
		return nil, err
	}
	return f, nil
}

// errNoFile is for a pipe, a device or a directory where a file of ours should be.
var errNoFile = fmt.Errorf("%w: not a regular file", ErrUnsafeDir)

// Close closes the file and, after writing, waits for children that another
// goroutine is starting: between fork and exec they have the file open too, and
// whoever executes it then gets ETXTBSY (golang/go#22315). On Linux the lock is
// held until the exec is done.
func (f osFile) Close() error {
	err := f.File.Close()
	if f.writer {
		awaitForks()
	}
	return err
}

func awaitForks() {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
}

func readNames(path string) ([]string, error) {
	d, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	return d.Readdirnames(-1)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// unless returns err, or nil when err is ok.
func unless(err, ok error) error {
	if isErr(err, ok) {
		return nil
	}
	return err
}

// tempName returns a name that nobody can have planted.
func tempName(prefix string) string { return prefix + strings.ToLower(rand.Text()[:16]) }
