package main

import (
	"fmt"
	"io/fs"
	"syscall"
)

// settle has the kernel write all that others left dirty.
func settle() { syscall.Sync() }

// fileSystem names the file system of a path: what fsync costs depends on it.
func fileSystem(path string) string {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil {
		return err.Error()
	}
	names := map[int64]string{0xef53: "ext4", 0x58465342: "xfs", 0x9123683e: "btrfs", 0x01021994: "tmpfs (flushes cost nothing here)", 0x794c7630: "overlayfs"}
	if name, ok := names[int64(s.Type)]; ok {
		return name
	}
	return fmt.Sprintf("file system %#x", s.Type)
}

// identity is what differs after a file was written, replaced or changed.
func identity(fi fs.FileInfo) string {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Sprint(fi.ModTime(), fi.Size())
	}
	return fmt.Sprint(st.Ino, st.Size, st.Mode, st.Mtim, st.Ctim)
}
