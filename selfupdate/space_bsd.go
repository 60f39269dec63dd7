//go:build darwin || freebsd || dragonfly

package selfupdate

import (
	"math"

	"golang.org/x/sys/unix"
)

func spaceOf(st *unix.Statfs_t) space {
	if int64(st.Bavail) < 0 { // the reserve is in use
		return space{inodes: math.MaxUint64}
	}
	return space{bytes: uint64(st.Bavail) * uint64(st.Bsize), inodes: math.MaxUint64}
}
