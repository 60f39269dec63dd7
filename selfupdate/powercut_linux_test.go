package selfupdate

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// disk is a file system of its own in a file, whose power can be cut.
type disk struct {
	image, dir, options string
}

func newDisk(t *testing.T, mkfs []string, options string) *disk {
	t.Helper()
	needRoot(t)
	d := &disk{image: filepath.Join(memory(t), "image"), dir: t.TempDir(), options: options}
	require.NoError(t, os.WriteFile(d.image, nil, 0o600))
	require.NoError(t, os.Truncate(d.image, 320<<20)) // the smallest that mkfs.xfs makes is 300 MiB
	if _, err := exec.LookPath(mkfs[0]); err != nil {
		t.Fatalf("this test needs %s: %v", mkfs[0], err)
	}
	command(t, mkfs[0], append(mkfs[1:], d.image)...)
	d.mount(t)
	t.Cleanup(func() { _ = unix.Unmount(d.dir, unix.MNT_DETACH) })
	return d
}

// mount mounts what is in the image. A mount namespace that somebody makes meanwhile
// has every mount of this one too, and keeps the one that was cut alive: a mount of the
// same image then yields that one, on which nothing works. scripts/test.sh therefore
// gives each package a namespace of its own; here a short one is waited for.
func (d *disk) mount(t *testing.T) {
	t.Helper()
	for range 100 {
		command(t, "mount", "-o", d.options, d.image, d.dir)
		err := os.Chmod(d.dir, 0o755)
		if !errors.Is(err, unix.EIO) {
			require.NoError(t, err)
			return
		}
		require.NoError(t, unix.Unmount(d.dir, 0))
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("the file system that was cut is still mounted somewhere")
}

// cut takes the power away: what was not flushed is gone, the journal's tail too.
func (d *disk) cut(t *testing.T) {
	t.Helper()
	f, err := os.Open(d.dir)
	require.NoError(t, err)
	const shutdown, noLogFlush = 0x8004587d, 2 // EXT4_IOC_SHUTDOWN, XFS_IOC_GOINGDOWN
	require.NoError(t, unix.IoctlSetPointerInt(int(f.Fd()), shutdown, noLogFlush))
	require.NoError(t, f.Close())
}

func (d *disk) remount(t *testing.T) {
	t.Helper()
	require.NoError(t, unix.Unmount(d.dir, 0))
	d.mount(t)
}

// TestPowerCutAnywhere cuts the power of a real file system before each operation
// of an update and of a way back, mounts it again and looks: the program is whole,
// the record can be read, and the next run ends where it should. ext4 without
// auto_da_alloc, which would hide a missing fsync; xfs never hides one.
func TestPowerCutAnywhere(t *testing.T) {
	for _, fs := range []struct {
		name    string
		mkfs    []string
		options string
	}{
		{"ext4", []string{"mkfs.ext4", "-q", "-F"}, "loop,noauto_da_alloc"},
		{"xfs", []string{"mkfs.xfs", "-q", "-f"}, "loop"},
	} {
		for _, s := range scenarios {
			t.Run(fs.name+" "+s.name, func(t *testing.T) {
				points := 0
				d := newDisk(t, fs.mkfs, fs.options)
				for at := 1; ; at++ {
					dir := filepath.Join(d.dir, fmt.Sprint(at))
					require.NoError(t, os.Mkdir(dir, 0o755))
					path := installedIn(t, dir, "s1")
					s.setup(t, path)
					unix.Sync()
					reached := false
					_, err := s.run(t, path, func(n int, op, p string) error {
						if n < at {
							return nil
						}
						if !reached {
							d.cut(t)
							reached = true
						}
						return errors.New("the power is off")
					})
					if !reached {
						require.NoError(t, err)
						d.cut(t) // after Apply returned, everything must be durable
					}
					d.remount(t)
					name := fmt.Sprintf("power cut at operation %d", at)
					require.Contains(t, []string{"s1", "s2"}, whole(t, path), name)
					if !reached {
						require.Equal(t, "s2", whole(t, path), name)
					}
					st, err := ReadStatus(path, nil)
					require.NoError(t, err, name)
					require.Equal(t, content256(t, path), st.Current.SHA256, name)
					if s.name == "rollback" {
						rejects(t, path, name)
					}
					recovers(t, path, name)
					require.NoError(t, os.RemoveAll(dir))
					if !reached {
						break
					}
					points++
				}
				t.Logf("%d power cuts, 0 broken", points+1)
			})
		}
	}
}

// rejects wants the program that was left to be rejected once the target is the other one.
func rejects(t *testing.T, path, name string) {
	t.Helper()
	st, err := ReadStatus(path, nil)
	require.NoError(t, err)
	if st.Unfinished || whole(t, path) != "s2" {
		return
	}
	require.Len(t, st.Rejected, 1, name)
	require.Equal(t, digests["s1"], st.Rejected[0].SHA256, name)
}
