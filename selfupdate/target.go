package selfupdate

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync/atomic"
)

// target is one program on disk with its state directory.
type target struct {
	layout
	sys      ops
	log      *slog.Logger
	create   bool   // the program may not be there yet
	own      bool   // it is the running program
	restarts bool   // a change needs a restart, of which the record says whether it was made
	version  string // of the program that is there, when no record says it

	asked atomic.Pointer[stamp] // for which file Tick last asked for a restart
}

// irregular says what is at the target instead of a file.
func irregular(mode fs.FileMode) error {
	if mode.IsDir() {
		return fmt.Errorf("%w: it is a directory; name the file in it", ErrNotRegular)
	}
	return fmt.Errorf("%w: %v", ErrNotRegular, mode.Type())
}

// check finds out before any request whether the swap at the end can work.
// It makes and removes one empty file in the target's directory.
func (t *target) check() error {
	fi, err := t.sys.lstat(t.target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if !t.create {
			return failed("check target", t.target, fmt.Errorf("%w (a first install must be allowed)", ErrNoTarget))
		}
	case err != nil:
		return failed("check target", t.target, err)
	case !fi.Mode().IsRegular():
		return failed("check target", t.target, irregular(fi.Mode()))
	default:
		if err := t.checkFlags(t.target, "file"); err != nil {
			return err
		}
	}
	return t.checkDir()
}

func (t *target) checkDir() error {
	fi, err := t.sys.lstat(t.dir)
	if err != nil {
		return failed("check directory", t.dir, err)
	}
	if n := len(filepath.Base(t.rollback)); n > maxName {
		return failed("check target", t.target, fmt.Errorf("%w: its name is %d bytes too long", ErrUnsafeDir, n-maxName))
	}
	if st, err := t.sys.lstat(t.state); err == nil && device(st) != device(fi) {
		return failed("check state directory", t.state, fmt.Errorf("%w: it is on another file system than the target", ErrUnsafeDir))
	}
	if worldWritable(fi) {
		return failed("check directory", t.dir, fmt.Errorf("%w: everybody may write to it", ErrUnsafeDir))
	}
	if err := t.checkFlags(t.dir, "directory"); err != nil {
		return err
	}
	probe := t.dir + string(separator) + tempName(probePrefix)
	f, err := t.sys.create(probe)
	if err != nil {
		return failed("check directory", t.dir, err)
	}
	return failed("check directory", t.dir, join(f.Close(), t.sys.remove(probe)))
}

func (t *target) checkFlags(path, what string) error {
	fl, err := t.sys.flags(path)
	switch {
	case err != nil:
		return failed("check target", path, err)
	case fl.immutable:
		return failed("check target", path, fmt.Errorf("%w: the %s is immutable: chattr -i", ErrPermission, what))
	case fl.appendOnly:
		return failed("check target", path, fmt.Errorf("%w: the %s is append-only: chattr -a", ErrPermission, what))
	case fl.mountPoint && what == "file":
		return failed("check target", path, fmt.Errorf("%w: mount its directory instead", ErrMountPoint))
	}
	return nil
}

const (
	spaceMargin = 1 << 20 // bytes that must remain for the record and the directories
	inodeMargin = 8
)

// checkSpace wants room for size bytes (-1: unknown) and the small files.
func (t *target) checkSpace(size int64) error {
	s, err := t.sys.space(t.dir)
	if err != nil {
		return failed("check space", t.dir, err)
	}
	need := uint64(max(size, 0)) + spaceMargin
	switch {
	case s.bytes < need:
		return failed("check space", t.dir, fmt.Errorf("%w: %d KiB are free, %d KiB needed", ErrNoSpace, s.bytes>>10, need>>10))
	case s.inodes < inodeMargin:
		return failed("check space", t.dir, fmt.Errorf("%w: %d inodes are free, %d needed", ErrNoSpace, s.inodes, inodeMargin))
	}
	return nil
}

// makeState makes the state directory, durably, before anything is put in it.
func (t *target) makeState() error {
	for _, d := range []struct{ path, parent string }{{t.state, t.dir}, {t.slots, t.state}} {
		if _, err := t.sys.lstat(d.path); errors.Is(err, fs.ErrNotExist) {
			if err := t.sys.mkdir(d.path); err != nil {
				return failed("make state directory", d.path, err)
			}
			if err := t.sys.syncDir(d.parent); err != nil {
				return failed("make state directory", d.path, err)
			}
		}
		if err := t.checkState(d.path); err != nil {
			return err
		}
	}
	return nil
}

// checkState refuses a state directory that others could have planted or could change.
func (t *target) checkState(path string) error {
	fi, err := t.sys.lstat(path)
	if err != nil {
		return failed("check state directory", path, err)
	}
	if !fi.IsDir() {
		return failed("check state directory", path, fmt.Errorf("%w: not a directory", ErrUnsafeDir))
	}
	if keepsModes && fi.Mode().Perm()&0o022 != 0 {
		return failed("check state directory", path, fmt.Errorf("%w: others may write to it: chmod 700", ErrUnsafeDir))
	}
	parent, err := t.sys.lstat(t.dir)
	if err != nil {
		return failed("check state directory", path, err)
	}
	uid, _ := owner(fi)
	if dirUID, _ := owner(parent); uid >= 0 && uid != 0 && uid != euid() && uid != dirUID {
		return failed("check state directory", path, fmt.Errorf("%w: it belongs to uid %d", ErrUnsafeDir, uid))
	}
	return nil
}
