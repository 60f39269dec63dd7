// Package atomicfile writes the small files of the example: what it tells and what
// it applies.
package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
)

// Write replaces the file at path as a whole, mode 0644: a reader sees the old
// content or the new. It promises nothing about a power cut; all that is written
// here is written again by the next reconcile.
func Write(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
