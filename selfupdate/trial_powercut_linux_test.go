package selfupdate

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestTrialPowerCutAnywhere cuts the power of a real file system before each file
// operation of those of the trial that write, mounts it again and looks: the target
// is whole, the record and the status can be read, and the next starts end stable. In
// the short form before some of them, and always after the last one.
func TestTrialPowerCutAnywhere(t *testing.T) {
	for _, fs := range []struct {
		name    string
		mkfs    []string
		options string
	}{
		{"ext4", []string{"mkfs.ext4", "-q", "-F"}, "loop,noauto_da_alloc"},
		{"xfs", []string{"mkfs.xfs", "-q", "-f"}, "loop"},
	} {
		t.Run(fs.name, func(t *testing.T) {
			d := newDisk(t, fs.mkfs, fs.options)
			for i, name := range []string{
				"apply, the first ever", "apply, with a history", "pre, first start", "pre, the switch did not survive",
				"pre, starts exhausted", "pre, expired", "begin without a helper, first start", "confirm", "expire",
				"tick, the deadline is over", "post, a failure", "rollback in a trial",
			} {
				t.Run(name, func(t *testing.T) {
					o := operationOf(t, name)
					step := 16
					if long() {
						step = 1
					}
					points := 0
					for at := 1 + i%step; d.cutIn(t, o, at); at += step {
						points++
					}
					t.Logf("%d power cuts, 0 broken", points+1)
				})
			}
		})
	}
}

// cutIn cuts the power before one operation of o, or after the last. It reports
// whether there was one.
func (d *disk) cutIn(t *testing.T, o operation, at int) bool {
	dir := filepath.Join(d.dir, fmt.Sprint(at))
	require.NoError(t, os.Mkdir(dir, 0o755))
	r := rigAt(t, installedIn(t, dir, "s1"), system())
	do := o.prepare(r)
	d.sync(t)
	n, off := at, false
	r.hook = func(op, _ string) error {
		if op != "lstat" {
			n--
		}
		if n <= 0 && !off {
			d.cut(t)
			off = true
		}
		if off {
			return errPowerOff
		}
		return nil
	}
	err := do()
	r.hook = nil
	if !off {
		d.cut(t) // what was done must be durable
	}
	d.remount(t)
	name := fmt.Sprintf("power cut at operation %d", at)
	r.clock.boot, r.clock.mono = "after a power cut", time.Minute
	if !off {
		require.NoError(t, err, name)
		o.done(r, name+", after it was done")
	}
	o.booted(r, err, off, name)
	_, err = ReadStatus(r.path, nil)
	require.NoError(t, err, name)
	r.settles(at%2 == 0, name)
	require.NoError(t, os.RemoveAll(dir))
	return off
}

// sync flushes this file system alone.
func (d *disk) sync(t *testing.T) {
	f, err := os.Open(d.dir)
	require.NoError(t, err)
	require.NoError(t, unix.Syncfs(int(f.Fd())))
	require.NoError(t, f.Close())
}
