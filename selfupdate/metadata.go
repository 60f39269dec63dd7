package selfupdate

import (
	"fmt"
	"io/fs"
)

// modeOf returns the permissions with setuid, setgid and sticky, which Perm loses.
func modeOf(fi fs.FileInfo) fs.FileMode {
	return fi.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
}

// firstInstall is the metadata of a program that nothing was there before.
var firstInstall = metadata{mode: 0o755, uid: -1, gid: -1}

// apply gives an open file the metadata, or says which part can't be kept. The
// order matters: chown clears setuid and capabilities.
func (m metadata) apply(f file) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if uid, gid := owner(fi); m.uid >= 0 && (uid != m.uid || gid != m.gid) {
		if err := f.Chown(m.uid, m.gid); err != nil {
			return fmt.Errorf("%w: the old file belongs to %d:%d, update as root or as that user: %v", ErrMetadata, m.uid, m.gid, err)
		}
	}
	if err := f.dropACL(); err != nil {
		return fmt.Errorf("%w: an inherited ACL stays: %v", ErrMetadata, err)
	}
	if err := f.Chmod(m.mode); err != nil {
		return fmt.Errorf("%w: mode %v: %v", ErrMetadata, m.mode, err)
	}
	for name, value := range m.xattrs {
		if err := f.setXattr(name, value); err != nil {
			return fmt.Errorf("%w: %s: %v", ErrMetadata, name, err)
		}
	}
	if fi, err = f.Stat(); err != nil {
		return err
	}
	if got := modeOf(fi); keepsModes && got != m.mode {
		return fmt.Errorf("%w: mode %v became %v on this file system", ErrMetadata, m.mode, got)
	}
	return nil
}
