package selfupdate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/metal-stack/selfreconcile/checksum"
)

// install makes the staged file the program. The order is that of docs/design.md:
// the new slot, the running program's own slot, the way back, the record, and only
// then the name. Killed anywhere, whoever next takes the lock finishes or forgets
// it, unless it is a trial (tr.Max > 0), which goes on.
func (t *target) install(ctx context.Context, s staged, e entry, r record, tr trial) error {
	if err := t.unmoved(r); err != nil {
		return join(err, t.sys.remove(s.path))
	}
	e.SHA256, e.Size, e.Confirmed = s.sha256, s.size, tr.Max == 0
	if !s.published.IsZero() {
		e.Published = s.published
	}
	if err := t.sys.rename(s.path, t.slot(e.SHA256)); err != nil {
		return failed("keep new program", s.path, join(err, t.sys.remove(s.path)))
	}
	if err := t.prepare(r, e.SHA256); err != nil {
		return join(err, t.drop(e.SHA256, r))
	}
	tr.Candidate = e
	st, err := t.switchTo(ctx, r, tr)
	if err != nil || tr.Max > 0 {
		return err
	}
	return t.complete(ctx, st)
}

// switchTo records the switch and makes it, under one lock: a start of the program
// meanwhile waits and then finds it done.
func (t *target) switchTo(ctx context.Context, r record, tr trial) (*stamp, error) {
	d := tr.Candidate.SHA256
	release, err := t.acquireState(ctx)
	if err != nil {
		return nil, join(err, t.drop(d, r))
	}
	defer release()
	tr.ID = tempName("")
	if err := t.announce(r, tr); err != nil {
		return nil, join(err, t.unannounce(r, tr))
	}
	st, err := t.swap(t.slot(d))
	if err != nil {
		return nil, join(failed("swap", t.target, err), t.withdraw(r, d))
	}
	// Without this the record stays unfinished: whoever comes next looks at what survived.
	return st, failedIn(Replaced, "make the swap durable", t.dir, t.sys.syncDir(t.dir))
}

// unmoved makes sure that the target is still what settle saw, which may be a
// long download ago: what is linked below must be what the record says it is.
func (t *target) unmoved(r record) error {
	_, err := t.sys.lstat(t.target)
	if r.missing && errors.Is(err, fs.ErrNotExist) || !r.missing && t.holds(r.Current) {
		return nil
	}
	return failed("check target", t.target, ErrChanged)
}

// prepare keeps the running program, in its slot and as the way back, and makes
// both slots durable.
func (t *target) prepare(r record, candidate checksum.Digest) error {
	here := r.Current != nil && !r.missing
	if here && !r.Current.SHA256.Equal(candidate) {
		if err := t.keepCurrent(r.Current.SHA256); err != nil {
			return failed("keep old program", t.slot(r.Current.SHA256), err)
		}
	}
	if err := t.sys.syncDir(t.slots); err != nil {
		return failed("keep old program", t.slots, err)
	}
	if !here {
		return nil
	}
	if err := t.arm(); err != nil {
		return failed("keep way back", t.rollback, err)
	}
	return failed("keep way back", t.dir, t.sys.syncDir(t.dir))
}

// keepCurrent gives the program at the target a slot of its own.
func (t *target) keepCurrent(d checksum.Digest) error {
	slot := t.slot(d)
	if t.same(slot, t.target) || t.intact(d) {
		return nil
	}
	return t.linkOver(t.target, slot)
}

// arm makes <dir>/.<name>.rollback another name of the program at the target, so
// that the way back is one rename that allocates nothing.
func (t *target) arm() error {
	if t.same(t.rollback, t.target) {
		return nil
	}
	return t.linkOver(t.target, t.rollback)
}

// linkOver makes to another name of from, replacing what to named. Where hard
// links can't be made it is a copy: the same order, but not free on a full disk.
func (t *target) linkOver(from, to string) error {
	tmp := t.temp()
	err := t.sys.link(from, tmp)
	if noLinks(err) {
		err = t.copyFile(from, tmp)
	}
	if err == nil {
		err = t.sys.rename(tmp, to)
	}
	if err != nil {
		return join(err, t.sys.remove(tmp))
	}
	return nil
}

// copyFile makes a durable copy with the metadata of the original.
func (t *target) copyFile(from, to string) (err error) {
	m, err := t.sys.metadata(from)
	if err != nil {
		return err
	}
	src, err := t.sys.open(from)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	dst, err := t.sys.create(to)
	if err != nil {
		return err
	}
	_, err = copyBuffer(dst, src)
	if err == nil {
		err = m.apply(dst)
	}
	if err == nil {
		err = dst.Sync()
	}
	return join(err, dst.Close())
}

// announce records the switch before it happens. The record's lock is held.
func (t *target) announce(seen record, tr trial) error {
	tr.BootID, tr.MonoStart = t.sys.boot(), int64(t.sys.mono())
	if fi, err := t.sys.lstat(t.slot(tr.Candidate.SHA256)); err == nil {
		tr.Candidate.Stat = stampOf(fi) // the target's too, unless it has to be a copy
	}
	return t.change(func(r *record) error {
		if r.Phase == phaseTrial {
			return failed("record", t.record(), ErrOnTrial)
		}
		for i := range r.Rejected {
			j := &r.Rejected[i]
			if j.rejects(tr.Candidate) && j.bars() { // meanwhile
				return failed("record", t.record(), ErrRejected)
			}
			if j.SHA256.Equal(tr.Candidate.SHA256) {
				j.Tries++
			}
		}
		if r.Phase == "" {
			rejected, extra := r.Rejected, r.extra
			*r = seen
			r.Rejected, r.extra = rejected, extra
		}
		r.Phase, r.Trial = phaseTrial, &tr
		r.PendingRestart = r.PendingRestart || t.restarts
		if r.Current != nil {
			r.Trial.Fallback = r.Current.SHA256
		}
		if r.Spare != nil && r.Spare.SHA256.Equal(tr.Candidate.SHA256) {
			r.Spare = nil
		}
		if tr.Max > 0 {
			t.event(r, outcomeOnTrial, tr.Candidate.name())
		}
		return nil
	})
}

// swap gives the target's name to a slot, in one step, and returns what the file
// is known by. That is taken before the rename: afterwards, somebody else's file
// may be there already.
func (t *target) swap(slot string) (*stamp, error) {
	if t.same(slot, t.target) { // a rename would succeed, do nothing and leave the source
		fi, err := t.sys.lstat(slot)
		if err != nil {
			return nil, err
		}
		return stampOf(fi), nil
	}
	tmp := t.temp()
	err := t.sys.link(slot, tmp)
	if noLinks(err) {
		err = t.copyFile(slot, tmp)
	}
	var fi fs.FileInfo
	if err == nil {
		fi, err = t.sys.lstat(tmp)
	}
	if err == nil {
		err = t.sys.commit(tmp, t.target)
	}
	if err != nil {
		return nil, join(err, t.sys.remove(tmp))
	}
	return stampOf(fi), nil
}

// unannounce is for an announce that failed: its record may be there all the same,
// when only making it durable did.
func (t *target) unannounce(before record, tr trial) error {
	if r, err := t.read(); err == nil && r.Trial != nil && r.Trial.ID == tr.ID {
		return t.withdraw(before, tr.Candidate.SHA256)
	}
	return t.drop(tr.Candidate.SHA256, before)
}

// withdraw undoes announce after a swap that did not happen. The lock is held.
func (t *target) withdraw(before record, d checksum.Digest) error {
	err := t.change(func(r *record) error {
		r.Phase, r.Trial, r.Last, r.PendingRestart = phaseStable, nil, before.Last, before.PendingRestart
		if j := r.rejection(d); j != nil {
			if old := before.rejection(d); old != nil {
				j.Tries = old.Tries
			}
		}
		if before.Spare != nil && r.Spare == nil {
			r.Spare = before.Spare
		}
		return nil
	})
	if err != nil {
		return err // unfinished: the next run sees the old program and forgets the rest
	}
	r, err := t.read()
	if err != nil {
		return err
	}
	return t.drop(d, r)
}

// drop removes the slot of a program that did not make it.
func (t *target) drop(d checksum.Digest, r record) error {
	for _, keep := range r.slots() {
		if keep.Equal(d) {
			return nil
		}
	}
	return t.sys.remove(t.slot(d))
}

// complete records that the switch is done, and cleans up. A full disk does not
// make it undone: the record says enough for the next run to finish it.
func (t *target) complete(ctx context.Context, st *stamp) error {
	ctx = context.WithoutCancel(ctx)
	done := func(forget func(*record)) error {
		return t.update(ctx, func(r *record) error {
			if r.Trial == nil {
				return nil
			}
			forget(r)
			c := r.Trial.Candidate
			c.Stat = st
			r.succeed(c)
			t.event(r, outcomeUpdated, "")
			return nil
		})
	}
	err := done(func(*record) {})
	if isErr(err, ErrNoSpace) {
		if forget := t.makeRoom(); forget != nil {
			err = done(forget)
		}
	}
	if err != nil {
		t.log.Warn("the update is done, but recording that has to wait for the next run", "error", err)
		return nil
	}
	r, err := t.read()
	if err == nil {
		err = t.sweep(r)
	}
	if err != nil {
		t.log.Warn("cleaning up has to wait for the next run", "error", err)
	}
	return nil
}

// makeRoom removes from a full disk what a trial can do without: the program that is
// kept to be tried again, else the older of the good ones. The record that is to be
// written has to forget them; nil: there was none.
func (t *target) makeRoom() (forget func(*record)) {
	r, err := t.read()
	if err != nil || r.Phase != phaseTrial {
		return nil
	}
	if s := r.Spare; s != nil && t.spareRoom(r) {
		return func(r *record) { r.lose(s.SHA256) }
	}
	var gone []checksum.Digest
	for _, e := range r.Good {
		if !r.needs(e.SHA256) && t.sys.remove(t.slot(e.SHA256)) == nil {
			gone = append(gone, e.SHA256)
		}
	}
	if gone == nil {
		return nil
	}
	return func(r *record) {
		for _, d := range gone {
			r.lose(d)
		}
	}
}

// spareRoom removes the spare, if that frees anything.
func (t *target) spareRoom(r record) bool {
	return r.Spare != nil && !r.needs(r.Spare.SHA256) && t.sys.remove(t.slot(r.Spare.SHA256)) == nil
}

// goBack puts the fallback in the place of the candidate that the record names,
// and records that. The record's lock is held and the record says what is to happen,
// unless that is what over says, for which there was no room.
func (t *target) goBack(fallback checksum.Digest, over *trial) error {
	st, err := t.restore(fallback)
	if err != nil {
		return err
	}
	err = t.recordBack(fallback, st, over)
	if isErr(err, ErrNoSpace) && t.dropCandidate(fallback) {
		err = t.recordBack(fallback, st, over)
	}
	return failedIn(Restored, "record", t.record(), err)
}

// restore makes the target name the fallback, verified, and makes that durable.
func (t *target) restore(fallback checksum.Digest) (st *stamp, err error) {
	if fi, err := t.sys.lstat(t.target); err == nil && fi.Mode().IsRegular() {
		st = stampOf(fi) // before the file is read: a later one must not be taken for it
	}
	there, err := t.hash(t.target, checksum.SHA256)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if !there.Equal(fallback) {
		if st, err = t.swapBack(fallback); err != nil {
			return nil, failed("swap", t.target, err)
		}
	}
	return st, failedIn(Restored, "make the swap durable", t.dir, t.sys.syncDir(t.dir))
}

// swapBack prefers the link that was made for it, which needs no space. Nothing
// unverified ever takes the place of a program.
func (t *target) swapBack(fallback checksum.Digest) (*stamp, error) {
	fi, err := t.sys.lstat(t.rollback)
	if err == nil && fi.Mode().IsRegular() && !t.same(t.rollback, t.target) {
		if got, err := t.hash(t.rollback, checksum.SHA256); err == nil && got.Equal(fallback) {
			return stampOf(fi), t.sys.commit(t.rollback, t.target)
		}
	}
	if !t.intact(fallback) {
		return nil, failed("verify previous program", t.slot(fallback), ErrDamaged)
	}
	return t.swap(t.slot(fallback))
}

// recordBack records that the target is the fallback again, and what that says
// about the candidate.
func (t *target) recordBack(fallback checksum.Digest, st *stamp, over *trial) error {
	return t.change(func(r *record) error {
		if r.Trial == nil {
			return nil
		}
		tr := *r.Trial
		if over != nil && over.ID == tr.ID && over.Expired {
			tr = *over
		}
		tr.close(t.sys.boot())
		if fallback.Equal(tr.Candidate.SHA256) {
			return fmt.Errorf("%w: candidate and fallback are the same", ErrDamaged)
		}
		r.revert(fallback)
		if r.Trial != nil {
			return fmt.Errorf("%w: the record does not know the previous program", ErrDamaged)
		}
		if st != nil {
			r.Current.Stat = st
		}
		reason := tr.Reason
		if !tr.Keep {
			reason = t.judge(r, tr)
		}
		if _, err := t.sys.lstat(t.slot(tr.Candidate.SHA256)); errors.Is(err, fs.ErrNotExist) { // its room was needed
			r.lose(tr.Candidate.SHA256)
		}
		t.event(r, outcomeRolledBack, reason)
		return nil
	})
}

// dropCandidate frees the space of the program that was just left.
func (t *target) dropCandidate(fallback checksum.Digest) bool {
	r, err := t.read()
	if err != nil {
		return false
	}
	if r.Trial == nil || r.Trial.Candidate.SHA256.Equal(fallback) {
		return false
	}
	return t.sys.remove(t.slot(r.Trial.Candidate.SHA256)) == nil
}

// same reports whether two names are one file.
func (t *target) same(a, b string) bool {
	fa, errA := t.sys.lstat(a)
	fb, errB := t.sys.lstat(b)
	return errA == nil && errB == nil && sameFile(fa, fb)
}
