//go:build !linux

package selfupdate

import "os"

func pinned(sys ops) ops { return sys }

// openLock makes the file when needed; here what root makes stays root's.
func openLock(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|noFollow|nonBlock, 0o600)
}
