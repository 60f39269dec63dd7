package selfupdate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/checksum"
)

// long reports whether the long forms of the fault tests are wanted: make soak.
func long() bool { return os.Getenv("SELFUPDATE_SOAK") != "" }

// A rig is a machine whose file operations can be made to fail, and what a
// bystander knows of it. s1 is the confirmed program, s2 the one on trial, s3 one
// from before s1 or one that an operator brings.
type rig struct {
	*machine
	hook     func(op, path string) error // before each operation; nil: none
	helper   bool                        // a Pre comes before every start
	unproven bool                        // nobody has confirmed s2
	starts   int                         // of s2 while that is so; those that end orderly don't count
	slack    int                         // starts that a fault may have cost
	full     bool                        // the disk was: a program that was left may have gone to make room for the record
	gone     bool                        // nothing may be at the target until a Pre
	noRoom   bool                        // on the disk, until a program is removed or somebody helps
}

// rigAt returns the rig for the program at path. Operations of the machine go
// through base.
func rigAt(t testing.TB, path string, base ops) *rig {
	r := &rig{helper: true, unproven: true}
	r.machine = newMachine(t, path, hookedLooks(base, func(op, p string) error {
		if r.hook != nil {
			if err := r.hook(op, p); err != nil {
				return err
			}
		}
		return r.fills(op, p)
	}))
	return r
}

// fills is the error of an operation that needs room where there is none.
func (r *rig) fills(op, path string) error {
	if op == "remove" && filepath.Base(filepath.Dir(path)) == "slots" {
		if _, err := os.Lstat(path); err == nil {
			r.noRoom = false
		}
	}
	if r.noRoom && allocates(op) {
		return &fs.PathError{Op: op, Path: path, Err: syscall.ENOSPC}
	}
	return nil
}

// hookedLooks is hooked with a hook before lstat too.
func hookedLooks(sys ops, hook func(op, path string) error) ops {
	h := hooked(sys, hook)
	h.lstat = func(p string) (fs.FileInfo, error) {
		if err := hook("lstat", p); err != nil {
			return nil, err
		}
		return sys.lstat(p)
	}
	return h
}

// An operation is what a fault hits. prepare brings the machine to just before it.
type operation struct {
	name    string
	prepare func(r *rig) (do func() error)
	want    string // what is at the target once do returned nil
	after   func(t testing.TB, r record)
	seam    bool // it needs a disk that only a test has
}

var operations = []operation{
	{"apply, the first ever", func(r *rig) func() error {
		return r.applying("s2")
	}, "s2", onTrialOf(0), false},
	{"apply, with a history", func(r *rig) func() error {
		r.history()
		return r.applying("s2")
	}, "s2", onTrialOf(0), false},
	{"apply, again after an inconclusive failure", func(r *rig) func() error {
		r.inconclusive()
		return r.applying("s2")
	}, "s2", onTrialOf(0), false},
	{"pre, first start", func(r *rig) func() error {
		r.must(r.applying("s2"))
		return r.pres
	}, "s2", onTrialOf(1), false},
	{"pre, later start", func(r *rig) func() error {
		r.must(r.applying("s2"))
		r.start(false)
		return r.pres
	}, "s2", onTrialOf(2), false},
	{"pre, starts exhausted", func(r *rig) func() error {
		r.history()
		r.exhaust()
		return r.pres
	}, "s1", rejectedAs(verdictGuilty), false},
	{"pre, expired", func(r *rig) func() error {
		u := r.onTrial()
		r.must(func() error { return unless(u.Guard(r.t.Context()), ErrExpired) })
		return r.pres
	}, "s1", rejectedAs(verdictPending), false},
	{"pre, the switch did not survive", func(r *rig) func() error {
		r.must(r.applying("s2"))
		r.undo()
		return r.pres
	}, "s2", onTrialOf(1), false},
	{"pre, the target is gone in a trial", func(r *rig) func() error {
		r.must(r.applying("s2"))
		r.must(func() error { return os.Remove(r.path) })
		r.gone = true
		return r.pres
	}, "s2", onTrialOf(1), false},
	{"pre, the target is gone", func(r *rig) func() error {
		r.history()
		r.must(func() error { return os.Remove(r.path) })
		r.gone = true
		return r.pres
	}, "s1", nil, false},
	{"pre, somebody replaced the target", func(r *rig) func() error {
		r.onTrial()
		r.must(func() error { return os.Remove(r.path) })
		copyProgram(r.t, "s3", r.path)
		return r.pres
	}, "s3", nil, false},
	{"begin after a pre", func(r *rig) func() error {
		r.must(r.applying("s2"))
		r.pre()
		r.starts++
		return r.begins
	}, "s2", onTrialOf(1), false},
	{"begin without a helper, first start", func(r *rig) func() error {
		r.helper = false
		r.must(r.applying("s2"))
		r.starts++
		return r.begins
	}, "s2", onTrialOf(1), false},
	{"begin without a helper, starts exhausted", func(r *rig) func() error {
		r.helper = false
		r.exhaust()
		return r.begins
	}, "s1", rejectedAs(verdictPending), false},
	{"begin in the fallback without a helper", func(r *rig) func() error {
		r.helper = false
		r.must(r.applying("s2"))
		r.undo()
		return r.begins
	}, "s1", nil, false},
	{"confirm", func(r *rig) func() error {
		r.history()
		u := r.onTrial()
		return func() error { return u.Confirm(r.t.Context()) }
	}, "s2", confirmed, false},
	{"confirm from outside, and cleaning", func(r *rig) func() error {
		r.onTrial()
		for _, p := range []string{"slots/.dl-left", "slots/" + digests["s3"].Hex(), ".tmp-left"} {
			copyProgram(r.t, "s3", filepath.Join(r.helperTarget().state, p))
		}
		return func() error { return r.machine.helper().Confirm(r.t.Context(), ConfirmOptions{Force: true}) }
	}, "s2", confirmed, false},
	{"confirm by the fallback, with a verdict open", func(r *rig) func() error {
		r.expired()
		u, _ := r.start(true)
		return func() error { return u.Confirm(r.t.Context()) }
	}, "s1", rejectedAs(verdictInconclusive), false},
	{"expire", func(r *rig) func() error {
		u := r.onTrial()
		return func() error { return unless(u.Guard(r.t.Context()), ErrExpired) }
	}, "s2", nil, false},
	{"tick, the deadline is over", func(r *rig) func() error {
		r.history()
		r.onTrial()
		r.clock.pass(10 * time.Minute)
		return r.ticks
	}, "s1", rejectedAs(verdictPending), false},
	{"tick, after a boot", func(r *rig) func() error {
		r.onTrial()
		r.clock.boot = "boot2"
		return r.ticks
	}, "s2", onTrialOf(1), false},
	{"post, a failure", func(r *rig) func() error {
		r.onTrial()
		return func() error { return r.machine.helper().Post(r.t.Context(), Ending{Detail: "signal SEGV"}) }
	}, "s2", onTrialOf(1), false},
	{"post, an orderly end", func(r *rig) func() error {
		r.onTrial()
		r.starts-- // it was told to stop
		return func() error { return r.machine.helper().Post(r.t.Context(), Ending{Orderly: true}) }
	}, "s2", onTrialOf(0), false},
	{"rollback in a trial", func(r *rig) func() error {
		r.history()
		r.onTrial()
		return r.rollsBack
	}, "s1", rejectedAs(verdictManual), false},
	{"rollback outside of a trial", func(r *rig) func() error {
		u := r.onTrial()
		r.must(func() error { return u.Confirm(r.t.Context()) })
		r.unproven = false
		return r.rollsBack
	}, "s1", rejectedAs(verdictManual), false},
	{"clear", func(r *rig) func() error {
		r.exhaust()
		r.start(false)
		require.Equal(r.t, "s1", r.at())
		return func() error {
			_, err := r.process().Clear(r.t.Context(), ClearOptions{All: true})
			return err
		}
	}, "s1", func(t testing.TB, r record) { require.Empty(t, r.Rejected) }, false},
	{"pre on a full disk, first start", func(r *rig) func() error {
		r.must(r.applying("s2"))
		r.fillUp()
		return func() error { return unless(r.pres(), ErrNoSpace) }
	}, "s1", onTrialOf(0), true},
	{"pre on a full disk, starts exhausted", func(r *rig) func() error {
		r.exhaust()
		r.fillUp()
		return r.pres
	}, "s1", rejectedAs(verdictGuilty), true},
	{"confirm on a full disk", func(r *rig) func() error {
		r.history()
		u := r.onTrial()
		r.fillUp()
		return func() error { return u.Confirm(r.t.Context()) }
	}, "s2", confirmed, true},
	{"rollback in a trial on a full disk", func(r *rig) func() error {
		r.onTrial()
		r.fillUp()
		return r.rollsBack
	}, "s1", rejectedAs(verdictManual), true},
	{"rollback outside of a trial on a full disk", func(r *rig) func() error {
		u := r.onTrial()
		r.must(func() error { return u.Confirm(r.t.Context()) })
		r.unproven = false
		r.fillUp()
		return r.rollsBack
	}, "s1", rejectedAs(verdictManual), true},
}

func (r *rig) fillUp() { r.noRoom, r.full = true, true }

func onTrialOf(started int) func(t testing.TB, r record) {
	return func(t testing.TB, r record) {
		require.Equal(t, phaseTrial, r.Phase)
		require.Equal(t, started, r.Trial.Started)
	}
}

func rejectedAs(verdict string) func(t testing.TB, r record) {
	return func(t testing.TB, r record) {
		require.Equal(t, phaseStable, r.Phase)
		j := r.rejection(digests["s2"])
		require.NotNil(t, j)
		require.Equal(t, verdict, j.Verdict)
	}
}

func confirmed(t testing.TB, r record) {
	require.Equal(t, phaseStable, r.Phase)
	require.True(t, r.Current.SHA256.Equal(digests["s2"]))
}

func (r *rig) must(do func() error) { r.t.Helper(); require.NoError(r.t, do()) }

func (r *rig) applying(version string) func() error {
	return func() error { _, err := r.apply(version); return err }
}

func (r *rig) pres() error { _, err := r.machine.helper().Pre(r.t.Context()); return err }

func (r *rig) begins() error { _, err := r.process().Begin(r.t.Context()); return err }

func (r *rig) ticks() error { _, err := r.machine.helper().Tick(r.t.Context()); return err }

func (r *rig) rollsBack() error {
	_, err := r.process().Rollback(r.t.Context(), RollbackOptions{Reason: "test"})
	return err
}

func (r *rig) helperTarget() *target { r.t.Helper(); return r.machine.helper().target }

// history gives s1 a program before it.
func (r *rig) history() {
	trial := r.cfg.Trial
	r.cfg.Trial = nil
	r.must(r.applying("s3"))
	r.must(r.applying("s1"))
	r.cfg.Trial = trial
}

// onTrial returns the process of the candidate's first start.
func (r *rig) onTrial() *Updater {
	r.must(r.applying("s2"))
	u, s := r.start(true)
	require.True(r.t, s.OnTrial)
	return u
}

func (r *rig) exhaust() {
	r.must(r.applying("s2"))
	for range r.cfg.Trial.Starts {
		r.start(!r.helper)
	}
}

// expired leaves s2 at its deadline.
func (r *rig) expired() {
	u := r.onTrial()
	r.must(func() error { return unless(u.Guard(r.t.Context()), ErrExpired) })
	r.must(r.pres)
	require.Equal(r.t, "s1", r.at())
}

func (r *rig) inconclusive() {
	r.expired()
	u, _ := r.start(true)
	r.must(func() error { return u.Confirm(r.t.Context()) })
	require.Equal(r.t, verdictInconclusive, r.record().Rejected[0].Verdict)
	r.starts = 0
}

// undo puts s1 back at the target, as a power cut does that loses the switch.
func (r *rig) undo() {
	tg := r.helperTarget()
	tmp := filepath.Join(tg.dir, "undone")
	r.must(func() error { return os.Link(tg.slot(digests["s1"]), tmp) })
	r.must(func() error { return os.Rename(tmp, r.path) })
}

// start is one start of the program as a supervisor makes it, whatever Pre says.
// A program that gets there calls Begin.
func (r *rig) start(begins bool) (u *Updater, s Start) {
	r.t.Helper()
	if r.helper {
		s, _ = r.machine.helper().Pre(r.t.Context())
	}
	if _, err := os.Lstat(r.path); r.gone && err != nil {
		return nil, s
	}
	r.gone = r.gone && !r.helper
	if r.unproven && r.at() == "s2" {
		r.starts++
	}
	if !begins {
		return nil, s
	}
	u = r.process()
	b, _ := u.Begin(r.t.Context())
	if b.Restart && r.unproven { // it left by itself, for the one before
		r.starts--
	}
	return u, b
}

// invariants checks what must hold on disk whenever nothing is under way, after
// any fault: I1, I2, I4, I5, I8 and I9 of docs/design.md. A record of a
// confirmation is one, whatever Confirm came to say.
func (r *rig) invariants(name string) record {
	t := r.t
	t.Helper()
	tg := r.helperTarget()
	rec, err := tg.read()
	require.NoError(t, err, "I9 %s", name)
	if _, err := os.Lstat(r.path); r.gone && err != nil {
		return rec
	}
	at := r.at()
	require.Contains(t, []string{"s1", "s2", "s3"}, at, "I1 %s", name)
	if rec.Phase == "" {
		require.False(t, r.unproven && at == "s2", "I4 %s: no record", name)
		return rec
	}
	require.NotNil(t, rec.Current, name)
	tr := rec.Trial
	if r.unproven && at == "s2" {
		require.True(t, tr != nil && tr.candidateIs(digests["s2"]), "I4 %s: %+v", name, rec)
	}
	if tr != nil && tr.Max > 0 && !tr.Expired {
		r.restorable(rec, name)
		left := r.full && at == nameOf(tr.Fallback)
		require.True(t, left || r.kept(tr.Candidate.SHA256), "I8 %s: the candidate", name)
	}
	if rec.Phase == phaseStable && rec.Last != nil && rec.Last.Outcome == outcomeRolledBack {
		require.NotNil(t, rec.rejection(digests["s2"]), "I5 %s", name)
	}
	require.True(t, r.full || at == nameOf(rec.Current.SHA256) || r.kept(rec.Current.SHA256), "I8 %s: current", name)
	for _, e := range rec.Good {
		require.True(t, r.full || r.kept(e.SHA256), "I8 %s: good %s", name, nameOf(e.SHA256))
		require.True(t, e.Confirmed, name)
	}
	if rec.Spare != nil {
		require.True(t, r.kept(rec.Spare.SHA256), "I8 %s: spare", name)
		require.False(t, rec.Spare.Confirmed, name)
	}
	return rec
}

// restorable wants a way back that is confirmed, intact, another file than the
// candidate, and free of any allocation (I2).
func (r *rig) restorable(rec record, name string) {
	t, tg, fallback := r.t, r.helperTarget(), rec.Trial.Fallback
	t.Helper()
	require.True(t, fallback.Equal(rec.Current.SHA256), "I2 %s", name)
	require.True(t, rec.Current.Confirmed, "I2 %s", name)
	require.True(t, r.kept(fallback), "I2, I8 %s: the fallback's slot", name)
	if r.at() == nameOf(fallback) {
		return
	}
	require.Equal(t, nameOf(fallback), whole(t, tg.rollback), "I2 %s: the way back", name)
	require.False(t, tg.same(tg.rollback, r.path), "I2 %s", name)
}

// kept reports whether the slot of d holds d.
func (r *rig) kept(d checksum.Digest) bool {
	data, err := os.ReadFile(newLayout(r.path).slot(d))
	return err == nil && digestOf(data).Equal(d)
}

func nameOf(d fmt.Stringer) string {
	for name, digest := range digests {
		if digest.String() == d.String() {
			return name
		}
	}
	return d.String()
}

// proven takes note of a confirmation that is on disk, after an operation that confirms.
func (r *rig) proven(o operation) {
	r.t.Helper()
	if !o.confirms() {
		return
	}
	rec := r.record()
	if rec.Phase == phaseStable && rec.Current != nil && rec.Current.SHA256.Equal(digests["s2"]) {
		r.unproven = false
	}
}

// settles starts the program again and again, without further faults, until it is
// stable (L1), with the invariants after each start. What is unproven crashes or,
// when well, confirms itself.
func (r *rig) settles(well bool, name string) {
	t := r.t
	t.Helper()
	limit := r.cfg.Trial.Starts + r.slack
	for round := 0; ; round++ {
		require.Less(t, round, limit+4, "L1 %s: never stable", name)
		u, s := r.start(well || !r.helper || round%2 == 0)
		rec := r.invariants(fmt.Sprintf("%s, start %d after it", name, round+1))
		require.LessOrEqual(t, r.starts, limit, "I3 %s", name)
		if u != nil && (well || r.at() != "s2" || !r.unproven) && !s.Restart {
			require.NoError(t, u.Confirm(t.Context()), name)
			if well && s.OnTrial {
				r.unproven = false
			}
			rec = r.invariants(name + ", confirmed")
		}
		if rec.Phase != phaseTrial && !s.Restart {
			break
		}
	}
	r.settled(name)
}

// settled checks a stable machine: what was bad is not tried again (I6), what is
// current stays (I7), and another update works and leaves nothing behind.
func (r *rig) settled(name string) {
	t := r.t
	t.Helper()
	rec := r.invariants(name)
	at := r.at()
	if rec.Phase != "" {
		require.Equal(t, nameOf(rec.Current.SHA256), at, name)
		require.True(t, rec.Current.Confirmed, name)
	}
	r.clock.pass(time.Hour)
	for range r.cfg.Trial.Starts + 1 {
		_, s := r.start(true)
		require.False(t, s.Restart || s.RolledBack || s.OnTrial, "I7 %s: %+v", name, s)
		c, err := r.machine.helper().Tick(t.Context())
		require.NoError(t, err, name)
		require.False(t, c.OnTrial, "I7 %s", name)
		require.Equal(t, at, r.at(), "I7 %s", name)
	}
	if rec = r.record(); at != "s2" && rec.rejection(digests["s2"]).bars() {
		_, err := r.apply("s2")
		require.ErrorIs(t, err, ErrRejected, "I6 %s", name)
		require.Equal(t, at, r.at(), "I6 %s", name)
	}
	next := "s3"
	if at == "s3" {
		next = "s1"
	}
	_, err := r.apply(next)
	require.NoError(t, err, name)
	u, s := r.start(true)
	require.True(t, s.OnTrial, name)
	require.NoError(t, u.Confirm(t.Context()), name)
	require.Equal(t, next, r.at(), name)
	r.tidied(name)
}

// tidied wants exactly the files that the record names.
func (r *rig) tidied(name string) {
	t := r.t
	t.Helper()
	want := []string{"app", ".app.rollback", ".app.d", ".app.d/slots", ".app.d/state.json"}
	rec := r.record()
	for _, d := range rec.slots() {
		want = append(want, ".app.d/slots/"+d.Hex())
	}
	got := slices.DeleteFunc(listing(t, filepath.Dir(r.path)), func(p string) bool {
		return strings.HasSuffix(p, "/"+helperMark) || strings.HasSuffix(p, "/"+timerMark)
	})
	require.ElementsMatch(t, want, got, name)
}

// faulted prepares o in a directory of its own, runs it with hook before each
// operation, numbered from 1, and returns the machine without the hook.
func (o operation) faulted(t testing.TB, dir string, hook func(r *rig, n int, op, path string) error) (*rig, error) {
	t.Helper()
	r := rigAt(t, installedIn(t, dir, "s1"), system())
	do := o.prepare(r)
	n := 0
	r.hook = func(op, p string) error { n++; return hook(r, n, op, p) }
	err := do()
	r.hook = nil
	return r, err
}

// done wants what o promised when it returned nil.
func (o operation) done(r *rig, name string) {
	r.t.Helper()
	require.Equal(r.t, o.want, r.at(), name)
	if o.after != nil {
		o.after(r.t, r.record())
	}
}

// starting reports whether a fault in o may cost a start: the supervisor starts what
// is there although the Pre before it did not come to its end.
func (o operation) starting() bool {
	return strings.HasPrefix(o.name, "pre") || strings.HasPrefix(o.name, "begin")
}

// either returns how the programs do after the fault at a point: in the short form one
// of the two.
func either(at int) []bool {
	if long() {
		return []bool{false, true}
	}
	return []bool{at%2 == 0}
}

func (o operation) confirms() bool { return strings.HasPrefix(o.name, "confirm") }

// TestTrialKilledAnywhere stops each operation of the trial before each of its file
// operations in turn, as kill -9 does. After that, and after every start that follows,
// the invariants hold, and the machine ends stable.
func TestTrialKilledAnywhere(t *testing.T) {
	for _, o := range operations {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			points := 0
			for at := 1; ; at++ {
				reached := false
				for _, well := range either(at) {
					dir := memory(t)
					skipped := 0
					r, err := o.faulted(t, dir, func(_ *rig, n int, op, p string) error {
						if op == "lstat" && !reached { // as good as killed before what follows
							skipped++
						} else if n-skipped >= at {
							reached = true
							return errors.New("killed")
						}
						return nil
					})
					name := fmt.Sprintf("killed at operation %d", at)
					o.check(t, r, err, reached, well, name)
					_ = os.RemoveAll(dir)
				}
				if !reached {
					break
				}
				points++
			}
			t.Logf("%d points, 0 broken", points)
			require.Positive(t, points)
		})
	}
}

// check is what all fault tests do with a machine after o was hit, or wasn't.
func (o operation) check(t testing.TB, r *rig, err error, hit, well bool, name string) {
	t.Helper()
	if !hit {
		require.NoError(t, err, name)
		o.done(r, name)
	}
	if hit && o.starting() {
		r.slack++
	}
	r.proven(o)
	if o.confirms() {
		require.False(t, err == nil && o.want == "s2" && r.unproven, "I7 %s: Confirm said nil", name)
	}
	r.invariants(name)
	if r.noRoom {
		r.start(true)
		r.invariants(name + ", a start on the full disk")
		r.noRoom = false
	}
	r.settles(well, name)
}

// TestTrialOperationFails lets each file operation in turn fail once; in the short
// form with another error each time.
func TestTrialOperationFails(t *testing.T) {
	errnos := []syscall.Errno{syscall.EIO, syscall.ENOSPC, syscall.EROFS}
	for i, o := range operations {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			points, failed := 0, ""
			for at := 1; at == 1 || failed != ""; at++ {
				some := errnos
				if !long() {
					some = errnos[(at+i)%len(errnos):][:1]
				}
				for _, errno := range some {
					dir := memory(t)
					failed = ""
					r, err := o.faulted(t, dir, func(_ *rig, n int, op, p string) error {
						if n != at {
							return nil
						}
						failed = op + " " + filepath.Base(p)
						return &fs.PathError{Op: op, Path: p, Err: errno}
					})
					r.full = r.full || errno == syscall.ENOSPC
					o.check(t, r, err, failed != "", at/2%2 == 0, fmt.Sprintf("operation %d (%s) fails: %v", at, failed, errno))
					_ = os.RemoveAll(dir)
					points++
				}
			}
			t.Logf("%d points, 0 broken", points)
		})
	}
}

// allocates reports whether an operation needs room on the disk.
func allocates(op string) bool {
	return slices.Contains([]string{"create", "write", "link", "mkdir", "reserve"}, op)
}

// TestTrialDiskFills fills the disk before each operation that needs room in turn. It
// stays full during two starts, and then somebody makes room. With and without the
// room that removing a program makes.
func TestTrialDiskFills(t *testing.T) {
	for _, frees := range []bool{false, true} {
		for _, o := range operations {
			t.Run(fmt.Sprintf("%s, removing makes room %v", o.name, frees), func(t *testing.T) {
				t.Parallel()
				hit := true
				for at := 1; hit; at++ {
					hit = o.diskFills(t, at, frees)
					if !hit {
						t.Logf("%d points, 0 broken", at-1)
					}
				}
			})
		}
	}
}

func (o operation) diskFills(t *testing.T, at int, frees bool) (hit bool) {
	needs, room := 0, false
	full := func(op, p string) error {
		if allocates(op) {
			needs++
		}
		switch {
		case needs < at:
		case allocates(op) && !room:
			hit = true
			return &fs.PathError{Op: op, Path: p, Err: syscall.ENOSPC}
		case op == "remove" && filepath.Base(filepath.Dir(p)) == "slots" && frees:
			room = true
		}
		return nil
	}
	dir := memory(t)
	defer func() { _ = os.RemoveAll(dir) }()
	r, err := o.faulted(t, dir, func(_ *rig, _ int, op, p string) error { return full(op, p) })
	r.full, r.noRoom = true, false
	name := fmt.Sprintf("disk full from the %dth operation on that needs room", at)
	if hit {
		r.proven(o)
		r.invariants(name)
		r.hook = full
		for range 2 {
			onTrial, before := r.record().Phase == phaseTrial, r.starts
			r.start(true)
			r.invariants(name + ", a start while it is")
			if onTrial && !room && r.unproven && r.helper {
				require.Equal(t, before, r.starts, "I3 %s: a start that was not counted", name)
			}
		}
		r.hook = nil
	}
	o.check(t, r, err, hit, at%2 == 0, name)
	return hit
}
