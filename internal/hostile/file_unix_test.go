//go:build unix

package hostile

import (
	"fmt"
	"io/fs"
	"syscall"
)

// owner is which inode it is, and whose.
func owner(fi fs.FileInfo) string {
	st := fi.Sys().(*syscall.Stat_t)
	return fmt.Sprint(st.Ino, st.Uid, st.Gid)
}

func links(fi fs.FileInfo) uint64 { return uint64(fi.Sys().(*syscall.Stat_t).Nlink) } //nolint:unconvert // another type on other systems
