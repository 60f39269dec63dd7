package selfupdate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/metal-stack/selfreconcile/checksum"
)

// layout is where things are, all on the target's file system:
//
//	/usr/local/bin/app             the program, a hard link to a slot
//	/usr/local/bin/.app.rollback   hard link to the program before it
//	/usr/local/bin/.app.d/         0700
//	    lock                       one updater at a time
//	    state.lock                 around each change of the record
//	    state.json                 the record
//	    slots/<sha256>             programs, never changed once there
//	    slots/.dl-*                being downloaded
//	    .tmp-*                     links and records about to be renamed
type layout struct {
	target   string
	dir      string
	rollback string
	state    string
	slots    string
}

func newLayout(target string) layout {
	dir, name := filepath.Dir(target), filepath.Base(target)
	state := filepath.Join(dir, "."+name+".d")
	return layout{
		target:   target,
		dir:      dir,
		rollback: filepath.Join(dir, "."+name+".rollback"),
		state:    state,
		slots:    filepath.Join(state, "slots"),
	}
}

func (l layout) lock() string      { return filepath.Join(l.state, "lock") }
func (l layout) stateLock() string { return filepath.Join(l.state, "state.lock") }
func (l layout) record() string    { return filepath.Join(l.state, "state.json") }
func (l layout) temp() string      { return filepath.Join(l.state, tempName(".tmp-")) }
func (l layout) download() string  { return filepath.Join(l.slots, tempName(".dl-")) }

func (l layout) slot(d checksum.Digest) string { return filepath.Join(l.slots, d.Hex()) }

// resolve returns the layout of the program at path, following links once: the
// link stays, the file behind it is replaced. Whoever needs the path later uses
// the answer; asking again after a swap gives another one.
func resolve(path string) (layout, error) {
	if path == "" {
		own, err := ownExecutable()
		if err != nil {
			return layout{}, failed("find own executable", "", err)
		}
		path = own
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return layout{}, failed("resolve target", path, err)
	}
	real, err := filepath.EvalSymlinks(abs)
	if errors.Is(err, fs.ErrNotExist) {
		return resolveMissing(abs)
	}
	if err != nil {
		return layout{}, failed("resolve target", abs, err)
	}
	return newLayout(real), nil
}

// resolveMissing is for a first install and for a way back after the program was
// deleted: the directory must be there.
func resolveMissing(abs string) (layout, error) {
	if _, err := os.Lstat(abs); err == nil {
		return layout{}, failed("resolve target", abs, fmt.Errorf("%w: a symbolic link to nothing", ErrNoTarget))
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if errors.Is(err, fs.ErrNotExist) {
		return layout{}, failed("resolve target", abs, fmt.Errorf("%w: neither does its directory", ErrNoTarget))
	}
	if err != nil {
		return layout{}, failed("resolve target", abs, err)
	}
	return newLayout(filepath.Join(dir, filepath.Base(abs))), nil
}

const maxName = 255 // bytes of a name, on every file system that matters

// sameFile is os.SameFile, also for the FileInfo of a test's file system.
func sameFile(a, b fs.FileInfo) bool { return os.SameFile(a, b) }

// worldWritable reports whether everybody may make and remove names in a directory.
func worldWritable(fi fs.FileInfo) bool { return keepsModes && fi.Mode().Perm()&0o002 != 0 }
