package selfupdate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var errPowerOff = errors.New("the power is off")

// lossyRig is a rig whose power can be cut.
func lossyRig(t *testing.T, path string) (*rig, *lossy) {
	t.Helper()
	l := newLossy(t, filepath.Dir(path))
	return rigAt(t, path, l.ops(system())), l
}

// cutAt cuts the power before the nth file operation from now on. Looking changes
// nothing, so that is none.
func (r *rig) cutAt(n int) (off *bool) {
	off = new(bool)
	r.hook = func(op, _ string) error {
		if op != "lstat" {
			n--
		}
		if *off = *off || n <= 0; *off {
			return errPowerOff
		}
		return nil
	}
	return off
}

// boots returns the machine after a power cut that the changes marked true survive,
// and its file system.
func (r *rig) boots(t *testing.T, l *lossy, survives []bool) (*rig, *lossy) {
	t.Helper()
	dir := memory(t)
	l.after(t, dir, survives)
	after, next := lossyRig(t, filepath.Join(dir, "app"))
	after.cfg.Trial = r.cfg.Trial
	after.helper, after.unproven, after.gone, after.full = r.helper, r.unproven, r.gone, r.full
	after.starts, after.slack = r.starts, r.slack
	after.clock.boot, after.clock.mono = r.clock.boot+", and a power cut", time.Minute
	return after, next
}

// TestTrialLostWrites cuts the power before each file operation of each operation of
// the trial, lets subsets of what was not flushed survive, and cuts it again while the
// next start looks at what is left.
func TestTrialLostWrites(t *testing.T) {
	for _, o := range operations {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			var c cuts
			for at := 1; c.first(t, o, at); at++ {
			}
			t.Logf("%d power cuts with %d outcomes, %d second ones with %d, 0 broken", c.points, c.outcomes, c.points2, c.outcomes2)
			require.Positive(t, c.points2)
		})
	}
}

// cuts counts.
type cuts struct{ points, outcomes, points2, outcomes2 int }

// first cuts the power at one operation of o. It reports whether there was one.
func (c *cuts) first(t *testing.T, o operation, at int) bool {
	dir := memory(t)
	defer func() { _ = os.RemoveAll(dir) }()
	r, l := lossyRig(t, installedIn(t, dir, "s1"))
	do := o.prepare(r)
	*l = *newLossy(t, dir) // what was before is durable
	off := r.cutAt(at)
	err := do()
	r.hook = nil
	c.points++
	for i, survives := range l.survivors(at) {
		c.outcomes++
		name := fmt.Sprintf("power cut at operation %d, of %d changes %v survive", at, len(l.pending), survives)
		after, next := r.boots(t, l, survives)
		if !*off {
			require.NoError(t, err, name)
			o.done(after, name+", after it was done")
		}
		o.booted(after, err, *off, name)
		switch {
		case long() || i < 2 && (at+i)%2 == 0:
			after.settles(at%2 == 0, name)
		case i < 2:
			c.again(t, o, after, next, at, i, name)
		}
		if long() {
			again, next := r.boots(t, l, survives)
			o.booted(again, err, *off, name)
			c.again(t, o, again, next, at, i, name)
			_ = os.RemoveAll(filepath.Dir(again.path))
		}
		_ = os.RemoveAll(filepath.Dir(after.path))
	}
	return *off
}

// booted checks a machine after a power cut during o, which returned err.
func (o operation) booted(r *rig, err error, off bool, name string) {
	r.t.Helper()
	if off && o.starting() && !r.helper {
		r.slack++ // this very start, which was not recorded yet
	}
	r.proven(o)
	if o.want == "s2" && o.confirms() {
		require.False(r.t, err == nil && r.unproven, "I7 %s: Confirm said nil", name)
	}
	r.invariants(name)
}

// again cuts the power in the start after a power cut: at one operation of it; in the
// long form, when nothing or everything survived the first, at every fifth, beginning
// with another each time. (At each after each outcome it would be hundreds of thousands.)
// What l holds is what the machine r found.
func (c *cuts) again(t *testing.T, o operation, r *rig, l *lossy, at, outcome int, name string) {
	found := l.survivors(at)[0] // nothing is pending yet
	seen := r
	second, stride := 1+(at*7+c.points2*13)%30, 0
	if long() && outcome < 2 {
		second, stride = 1+(at*2+outcome)%5, 5
	}
	for ; ; second += stride {
		r, l := seen.boots(t, l, found)
		r.clock.boot = seen.clock.boot
		off := r.cutAt(second)
		r.start(true)
		r.hook = nil
		if *off { // by the time it would have run
			r.starts, r.gone = seen.starts, seen.gone
		}
		c.points2++
		for i, survives := range l.survivors(second) {
			if i > 1 && !long() || i > 3 && (second+i)%4 > 0 {
				continue
			}
			c.outcomes2++
			name := fmt.Sprintf("%s; again at operation %d of the next start, of %d changes %v survive", name, second, len(l.pending), survives)
			after, _ := r.boots(t, l, survives)
			o.booted(after, errPowerOff, *off, name)
			if i == second%2 {
				after.settles(second/2%2 == 0, name)
			}
			_ = os.RemoveAll(filepath.Dir(after.path))
		}
		_ = os.RemoveAll(filepath.Dir(r.path))
		if !*off || stride == 0 {
			return
		}
	}
}
