package selfupdate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/metal-stack/selfreconcile/checksum"
)

// What happens before and around a start of the program: docs/design.md, "Trial".

// quiet reports without decoding whether there is nothing to do for Begin and
// Confirm: no record, or a whole one that says stable and waits for no verdict.
func (t *target) quiet() bool {
	f, err := t.sys.open(t.record())
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	defer func() { _ = f.Close() }()
	var buf [maxRecord + 1]byte
	n := 0
	for n < len(buf) {
		m, err := f.Read(buf[n:])
		n += m
		if m == 0 || err != nil {
			break
		}
	}
	return isQuiet(buf[:n])
}

var (
	recordHead = fmt.Appendf(nil, `{"format":%d,"sha256":"`, recordFormat)
	stableHead = []byte(`","record":{"phase":"stable"`)
	recordTail = []byte("}\n")
	waits      = [][]byte{[]byte(`"verdict":"pending"`), []byte(`"pending_restart":true`)}
)

// isQuiet looks for the text that this package writes. A quote inside a JSON string
// is escaped, so no version or reason can look like it.
func isQuiet(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, recordHead)
	const digits = sha256.Size * 2
	if !ok || len(line) > maxRecord || len(rest) < digits || !bytes.HasPrefix(rest[digits:], stableHead) {
		return false
	}
	sum, rest := rest[:digits], rest[digits+len(`","record":`):]
	if rest, ok = bytes.CutSuffix(rest, recordTail); !ok {
		return false
	}
	if slices.ContainsFunc(waits, func(w []byte) bool { return bytes.Contains(rest, w) }) {
		return false
	}
	got := sha256.Sum256(rest)
	return hex.EncodeToString(got[:]) == string(sum)
}

// settled makes durable what the record says: who wrote it may have been killed, or
// have failed, before it was.
func (t *target) settled() error {
	err := t.sys.syncDir(t.state)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return failed("make the record durable", t.record(), err)
}

// begin is what happens at a start: before it (me is nil), or in the program
// itself, which runs the file me. It returns the trial that the program is on.
func (t *target) begin(ctx context.Context, me fs.FileInfo) (s Start, id string, err error) {
	if _, err := t.sys.lstat(t.state); errors.Is(err, fs.ErrNotExist) {
		return Start{}, "", nil
	}
	release, err := t.acquireState(ctx)
	if err != nil { // not counted, but watched all the same
		if r, rerr := t.read(); rerr == nil && r.Phase == phaseTrial && r.Trial.Max > 0 && t.holds(&r.Trial.Candidate) {
			tr := r.Trial
			return Start{OnTrial: true, Version: tr.Candidate.Version, Left: max(0, tr.Max-tr.Started), Deadline: time.Duration(tr.Deadline)}, tr.ID, err
		}
		return Start{}, "", err
	}
	defer release()
	if fi, lerr := t.sys.lstat(t.target); me != nil && lerr == nil && !sameFile(fi, me) { // replaced while this waited
		return Start{}, "", nil
	}
	// What is read must be durable before it is acted on.
	unsynced := t.sys.syncDir(t.state)
	r, err := t.read()
	switch {
	case errors.Is(err, errDamaged), err == nil && r.Phase == phaseStable:
		s, err = t.beginStable(r, me == nil)
	case err != nil || r.Phase == "":
	case r.Trial.Max == 0 && r.Trial.Expired:
		s, err = t.goBackAtStart(r)
	case r.Trial.Max == 0:
		s, err = t.beginUnfinished(me == nil)
	default:
		s, err = t.beginTrial(r, me != nil, unsynced)
	}
	if s.OnTrial {
		id = r.Trial.ID
	}
	return s, id, join(err, failed("make the start durable", t.dir, t.sys.syncDir(t.dir)))
}

// beginStable adopts what an operator put there, and restores what is gone.
func (t *target) beginStable(r record, pre bool) (Start, error) {
	if t.holds(r.Current) && !(pre && r.PendingRestart) { // nearly every start
		return Start{Version: r.Current.Version}, nil
	}
	_, err := t.sys.lstat(t.target)
	switch {
	case errors.Is(err, fs.ErrNotExist) && r.Current != nil && pre:
		return t.putBack(r)
	case errors.Is(err, fs.ErrNotExist):
		return Start{}, failed("read target", t.target, ErrNoTarget)
	case err != nil:
		return Start{}, failed("read target", t.target, err)
	}
	err = t.changeInRoom(func(r *record) error {
		r.PendingRestart = false // it is being restarted
		if t.holds(r.Current) {
			return nil
		}
		return t.adopt(r)
	})
	if r, rerr := t.read(); rerr == nil && r.Current != nil {
		return Start{Version: r.Current.Version}, err
	}
	return Start{}, err
}

// beginUnfinished leaves an update that is being recorded, or was killed, to the next
// one, which finishes it. Only a target that is gone can't wait for that.
func (t *target) beginUnfinished(pre bool) (Start, error) {
	if _, err := t.sys.lstat(t.target); !pre || !errors.Is(err, fs.ErrNotExist) {
		return Start{}, nil
	}
	if err := t.change(t.finished); err != nil {
		return Start{}, err
	}
	r, err := t.read()
	if err != nil || r.Current == nil {
		return Start{}, join(err, failed("read target", t.target, ErrNoTarget))
	}
	return t.putBack(r)
}

// putBack is for a target that is gone. A file that somebody put there by hand has
// no slot of its own before the next update: then a program before it comes back.
func (t *target) putBack(r record) (Start, error) {
	for _, e := range append([]entry{*r.Current}, r.Good...) {
		if !t.intact(e.SHA256) {
			continue
		}
		if _, err := t.swap(t.slot(e.SHA256)); err != nil {
			return Start{}, failed("restore the program", t.target, err)
		}
		if err := t.sys.syncDir(t.dir); err != nil {
			return Start{}, failedIn(Restored, "make the swap durable", t.dir, err)
		}
		t.log.Warn("the program was gone: put back", "path", t.target, "sha256", e.SHA256.Hex())
		return Start{Version: e.Version, Reason: "the program was gone and was put back"}, t.change(t.adopt)
	}
	return Start{}, failed("restore the program", t.target, ErrDamaged)
}

// beginTrial decides which of the two programs starts.
func (t *target) beginTrial(r record, inside bool, unsynced error) (Start, error) {
	tr := r.Trial
	there, err := t.identify(r)
	if err != nil {
		return Start{}, err
	}
	candidate := tr.candidateIs(there.SHA256)
	fallback := !candidate && tr.Fallback.Equal(there.SHA256)
	switch {
	case !candidate && !fallback && !there.SHA256.IsZero():
		return Start{Version: there.Version, Reason: "another file was put at the target: it stays, and the trial is over"}, t.change(t.stay)
	case inside && candidate && tr.Pre != "" && !tr.Expired:
		return t.begunByPre(*tr)
	case tr.Expired || tr.Started >= tr.Max:
		return t.goBackAtStart(r)
	case inside && fallback:
		return t.abandon(r, "the program before is running")
	}
	counted, err := t.count(inside, unsynced)
	if err != nil {
		return t.retreat(r, fallback, err)
	}
	s := Start{OnTrial: true, Version: tr.Candidate.Version, Left: tr.Max - counted, Deadline: time.Duration(tr.Deadline)}
	if candidate {
		return s, nil
	}
	return t.redo(r, there.SHA256.IsZero(), s)
}

// begunByPre takes the mark away: the program got as far as Begin.
func (t *target) begunByPre(tr trial) (Start, error) {
	left := time.Duration(tr.Deadline)
	if tr.BootID == t.sys.boot() {
		left -= t.sys.mono() - time.Duration(tr.MonoStart)
	}
	s := Start{OnTrial: true, Version: tr.Candidate.Version, Left: max(0, tr.Max-tr.Started), Deadline: max(0, left)}
	return s, t.change(func(r *record) error {
		if r.Trial != nil && r.Trial.ID == tr.ID {
			r.Trial.Pre = ""
		}
		return nil
	})
}

// count records the start durably, before it happens.
func (t *target) count(inside bool, unsynced error) (counted int, err error) {
	if unsynced != nil {
		return 0, failed("read record", t.record(), unsynced)
	}
	err = t.change(func(r *record) error {
		if r.Trial == nil {
			return failed("record", t.record(), ErrChanged)
		}
		tr := r.Trial
		tr.close(t.sys.boot())
		tr.Started++
		r.PendingRestart = false // it is being started
		tr.Running, tr.Pre = true, ""
		if !inside {
			tr.Pre = tempName("")
		}
		tr.BootID, tr.MonoStart = t.sys.boot(), int64(t.sys.mono())
		counted = tr.Started
		return nil
	})
	return counted, err
}

// close notes how the last start ended, when nobody saw it.
func (tr *trial) close(boot string) {
	switch {
	case !tr.Running:
	case tr.BootID != boot:
		tr.fail(classUnhealthy, "the machine went down")
	case tr.Pre != "" && !tr.Outside:
		tr.fail(classCrash, "did not get to Begin")
	default:
		tr.fail(classUnhealthy, "ended without being confirmed")
	}
}

func (tr *trial) fail(class, detail string) {
	tr.Running, tr.Pre = false, ""
	tr.Failures = append(tr.Failures, class+": "+clip(detail, 64))
	if n := len(tr.Failures) - maxStarts; n > 0 {
		tr.Failures = slices.Delete(tr.Failures, 0, n)
	}
}

// retreat is for a start that can't be recorded: then it must not be the
// candidate's. The way back was made in advance and allocates nothing.
func (t *target) retreat(r record, fallback bool, cause error) (Start, error) {
	s := Start{Reason: fmt.Sprintf("the start could not be recorded, so the program before runs: %v", cause)}
	if r.Current != nil {
		s.Version = r.Current.Version
	}
	if fallback {
		return s, cause
	}
	d, err := t.wayBack(r)
	if err == nil {
		_, err = t.restore(d)
	}
	var e *Error
	if s.RolledBack = err == nil || errors.As(err, &e) && e.State == Restored; !s.RolledBack {
		s.Version, s.OnTrial, s.Deadline = r.Trial.Candidate.Version, true, time.Duration(r.Trial.Deadline) // better than nothing
	}
	return s, join(cause, err)
}

// goBackAtStart ends a trial: the program before comes back.
func (t *target) goBackAtStart(r record) (Start, error) {
	err := t.leave(r)
	now, rerr := t.read()
	s := Start{RolledBack: true}
	if rerr == nil && now.Last != nil {
		s.Reason = now.Last.Reason
	}
	if rerr == nil && now.Current != nil {
		s.Version = now.Current.Version
	}
	if there, ierr := t.identify(r); ierr == nil && r.Trial.candidateIs(there.SHA256) {
		s.RolledBack = false
	}
	return s, err
}

// abandon ends a trial whose fallback is what runs. Nothing is rejected; the candidate
// stays on disk, and the next update to it begins a new trial without a download.
func (t *target) abandon(r record, reason string) (Start, error) {
	s := Start{Reason: "the trial of " + r.Trial.Candidate.name() + " is over: " + reason}
	if r.Current != nil {
		s.Version = r.Current.Version
	}
	if err := t.sys.syncDir(t.dir); err != nil {
		return s, failed("check target", t.dir, err)
	}
	return s, t.change(func(r *record) error {
		if r.Trial == nil {
			return nil
		}
		tr := *r.Trial
		r.revert(tr.Fallback)
		if r.Trial != nil {
			return t.stay(r)
		}
		t.keepSpare(r, tr.Candidate)
		t.event(r, outcomeDropped, reason)
		return nil
	})
}

// keepSpare lets the slot of a program that may be tried again stay.
func (t *target) keepSpare(r *record, e entry) {
	if _, err := t.sys.lstat(t.slot(e.SHA256)); err == nil {
		e.Confirmed = false
		r.Spare = &e
	}
}

// redo makes the switch that was recorded and didn't happen, or didn't survive.
func (t *target) redo(r record, missing bool, s Start) (Start, error) {
	d := r.Trial.Candidate.SHA256
	err := error(nil)
	if !t.intact(d) {
		err = failed("verify new program", t.slot(d), ErrDamaged)
	} else if err = t.rearm(r, missing); err == nil || missing { // better without a way back than nothing
		_, err = t.swap(t.slot(d))
		err = failed("swap", t.target, err)
	}
	if err == nil {
		return s, nil
	}
	var back error
	if missing {
		_, back = t.restore(r.Trial.Fallback)
	}
	if isErr(err, ErrDamaged) {
		s, derr := t.abandon(r, "a program is damaged on disk")
		return s, join(err, back, derr)
	}
	if r.Current != nil {
		s = Start{Version: r.Current.Version, Reason: "the switch could not be made, so the program before runs"}
	}
	return s, join(err, back)
}

// rearm makes the way back again, from the slot: somebody may just be replacing the target.
func (t *target) rearm(r record, missing bool) error {
	slot := t.slot(r.Trial.Fallback)
	if !t.intact(r.Trial.Fallback) {
		other := t.target
		if missing {
			other = t.rollback
		}
		got, err := t.hash(other, checksum.SHA256)
		if err == nil && !got.Equal(r.Trial.Fallback) {
			err = ErrDamaged
		}
		if err == nil {
			err = t.linkOver(other, slot)
		}
		if err != nil {
			return failed("keep old program", slot, err)
		}
	}
	if err := t.sys.syncDir(t.slots); err != nil {
		return failed("keep old program", t.slots, err)
	}
	if !t.same(t.rollback, slot) {
		if err := t.linkOver(slot, t.rollback); err != nil {
			return failed("keep way back", t.rollback, err)
		}
	}
	return failed("keep way back", t.dir, t.sys.syncDir(t.dir))
}

// confirm ends the trial well, or tells what the record waits for. It reports
// whether the record changed.
func (t *target) confirm(ctx context.Context, id string, mine func() bool, outside *ConfirmOptions) (changed bool, err error) {
	release, err := t.acquireState(ctx)
	if err != nil {
		return false, err
	}
	defer release()
	if !mine() { // it was left while this waited for the lock
		if id != "" {
			return false, failed("confirm", t.target, ErrExpired)
		}
		return false, nil
	}
	forget := func(*record) {}
	change := func(r *record) error {
		forget(r)
		if err := t.mayConfirm(r, outside); err != nil {
			return err
		}
		switch {
		case r.damaged:
			changed = true
			return t.adopt(r)
		case r.PendingRestart && outside != nil && !outside.Force: // what runs may not be what is at the target
			return failed("confirm", t.target, fmt.Errorf("%w: the program was not restarted yet", ErrBusy))
		case r.Phase == phaseTrial && r.Trial.Expired && r.Trial.Max == 0:
			return failed("confirm", t.target, ErrExpired)
		case r.Phase == phaseTrial && r.Trial.Max > 0:
			changed = true
			return t.confirmTrial(r, id)
		case r.Phase != phaseStable:
			return nil
		case !t.holds(r.Current):
			return t.adopt(r)
		default:
			changed = r.resolve(t.sys.boot(), t.sys.mono())
		}
		return nil
	}
	if err = t.change(change); isErr(err, ErrNoSpace) {
		if gone := t.makeRoom(); gone != nil {
			forget = gone
			err = t.change(change)
		}
	}
	if err == nil && !changed {
		err = t.settled()
	}
	return changed, err
}

// mayConfirm is for a confirmation from outside, by somebody who may know an older state.
func (t *target) mayConfirm(r *record, o *ConfirmOptions) error {
	if o == nil {
		return nil
	}
	onTrial := r.Phase == phaseTrial && r.Trial.Max > 0
	if !o.From.IsZero() && !(onTrial && r.Trial.Candidate.is(o.From)) && !(r.Phase == phaseStable && r.Current != nil && r.Current.is(o.From)) {
		return failed("confirm", t.target, fmt.Errorf("%w: another program is there by now", ErrChanged))
	}
	if !onTrial || r.Trial.Expired || o.Force || !r.Trial.known(t.lastSeen(helperMark) == t.sys.boot()) {
		return nil
	}
	switch tr := r.Trial; {
	case !tr.Running:
		return failed("confirm", t.target, fmt.Errorf("%w: %s", ErrNotRunning, tr.lastEnd()))
	case tr.Pre != "" && !tr.Outside:
		return failed("confirm", t.target, fmt.Errorf("%w: it has not got to Begin in this start", ErrNotRunning))
	}
	return nil
}

// known reports whether Running tells whether the candidate runs: somebody counts
// its starts, or it does.
func (tr *trial) known(watched bool) bool { return watched || tr.begun() || !tr.Outside }

func (tr *trial) lastEnd() string {
	if len(tr.Failures) == 0 {
		return fmt.Sprintf("start %d of %d", tr.Started, tr.Max)
	}
	return fmt.Sprintf("start %d of %d, the last one ended: %s", tr.Started, tr.Max, tr.Failures[len(tr.Failures)-1])
}

func (t *target) confirmTrial(r *record, id string) error {
	there, err := t.identify(*r)
	if err != nil {
		return err
	}
	tr := *r.Trial
	switch {
	case there.SHA256.IsZero():
		return failed("confirm", t.target, ErrNoTarget)
	case !tr.candidateIs(there.SHA256) && tr.Fallback.Equal(there.SHA256):
		return t.resolveLeftover(r, there)
	case !tr.candidateIs(there.SHA256):
		return t.stay(r)
	case tr.Expired, id != "" && tr.ID != id:
		return failed("confirm", t.target, ErrExpired)
	}
	c := tr.Candidate
	c.Stat, c.Confirmed = there.Stat, true
	r.succeed(c)
	r.resolve(t.sys.boot(), t.sys.mono())
	t.event(r, outcomeConfirmed, c.name()+" after "+counted(tr.Started))
	return nil
}

// resolveLeftover is for a fallback that runs and works while the record still
// says trial, as after a full disk.
func (t *target) resolveLeftover(r *record, there entry) error {
	if err := t.sys.syncDir(t.dir); err != nil { // what is seen here must be durable before it is recorded
		return failed("check target", t.dir, err)
	}
	tr := *r.Trial
	tr.close(t.sys.boot())
	r.revert(tr.Fallback)
	if r.Trial != nil {
		return t.stay(r)
	}
	r.Current.Stat = there.Stat
	if tr.Expired || tr.Started >= tr.Max {
		t.event(r, outcomeRolledBack, t.judge(r, tr))
		r.resolve(t.sys.boot(), t.sys.mono())
		return nil
	}
	t.keepSpare(r, tr.Candidate)
	t.event(r, outcomeDropped, "the program before is running")
	return nil
}

// expire records that the candidate's time is over. It reports whether the trial
// is on its way back.
func (t *target) expire(ctx context.Context, id string) (over bool, err error) {
	err = t.update(context.WithoutCancel(ctx), func(r *record) error {
		over = r.Trial != nil && r.Trial.ID == id
		if over && !r.Trial.Expired {
			r.Trial.expire()
		}
		return nil
	})
	return over, err
}

func (tr *trial) expire() {
	tr.Expired, tr.Class = true, classUnhealthy
	d := time.Duration(tr.Deadline)
	tr.Reason = fmt.Sprintf("not confirmed within %v of its start", d)
	if tr.Pre != "" && !tr.Outside {
		tr.Class, tr.Reason = classHang, fmt.Sprintf("did not get to Begin within %v", d)
	}
	tr.Running, tr.Pre = false, ""
}

// Ending is how a process of the target's program ended.
type Ending struct {
	Orderly     bool   // it was told to stop, and did
	NotExecuted bool   // it could not even be started
	Hung        bool   // it was killed for not answering
	Killed      bool   // by SIGKILL, or for want of memory: before Begin no sign of a crash
	Detail      string // for people, e.g. "signal SEGV"
}

// ended records how the last start of the candidate ended.
func (t *target) ended(ctx context.Context, id string, e Ending) error {
	return t.update(context.WithoutCancel(ctx), func(r *record) error {
		if r.Trial == nil || !r.Trial.Running || r.Trial.Expired || id != "" && r.Trial.ID != id {
			return nil
		}
		tr := r.Trial
		if there, err := t.identify(*r); err != nil || !there.SHA256.IsZero() && !tr.candidateIs(there.SHA256) {
			return err // what ended was not the candidate
		}
		begun := tr.Pre == "" || tr.Outside
		switch {
		case e.Orderly && tr.Refunds < tr.Max:
			tr.Running, tr.Pre = false, ""
			tr.Started--
			tr.Refunds++
		case e.Orderly:
			tr.fail(classUnhealthy, "ended orderly, once too often")
		case e.Hung:
			tr.fail(classHang, cmpText(e.Detail, "did not answer"))
		case begun, e.Killed:
			tr.fail(classUnhealthy, cmpText(e.Detail, "ended without being confirmed"))
		case e.NotExecuted:
			tr.fail(classExec, cmpText(e.Detail, "could not be executed"))
		default:
			tr.fail(classCrash, cmpText(e.Detail, "did not get to Begin"))
		}
		return nil
	})
}

func cmpText(s, otherwise string) string {
	if s = strings.ToValidUTF8(strings.Map(printable, s), "?"); s == "" {
		return otherwise
	}
	return s
}

func printable(r rune) rune {
	if isControl(r) {
		return ' '
	}
	return r
}
