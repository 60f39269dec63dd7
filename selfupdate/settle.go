package selfupdate

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/metal-stack/selfreconcile/checksum"
)

// stampOf returns what tells a file from its successor.
func stampOf(fi fs.FileInfo) *stamp {
	return &stamp{Size: fi.Size(), Mtime: fi.ModTime().UnixNano(), Inode: inode(fi)}
}

// stamp is what the file at the target is known by; nil when there is none.
func (t *target) stamp() *stamp {
	fi, err := t.sys.lstat(t.target)
	if err != nil {
		return nil
	}
	return stampOf(fi)
}

// holds reports whether the target is still the file recorded for e.
func (t *target) holds(e *entry) bool {
	if e == nil || e.Stat == nil {
		return false
	}
	fi, err := t.sys.lstat(t.target)
	return err == nil && fi.Mode().IsRegular() && *stampOf(fi) == *e.Stat
}

// identify returns the digest of what is at the target; zero when nothing is.
func (t *target) identify(r record) (entry, error) {
	known := slices.Clone(r.Good)
	if r.Current != nil {
		known = append(known, *r.Current)
	}
	if r.Trial != nil {
		known = append(known, r.Trial.Candidate)
	}
	for _, e := range known {
		if t.holds(&e) {
			return e, nil
		}
	}
	fi, err := t.sys.lstat(t.target)
	if errors.Is(err, fs.ErrNotExist) {
		return entry{}, nil
	}
	if err != nil {
		return entry{}, failed("read target", t.target, err)
	}
	if !fi.Mode().IsRegular() {
		return entry{}, failed("read target", t.target, irregular(fi.Mode()))
	}
	sum, err := t.hash(t.target, checksum.SHA256)
	if err != nil {
		return entry{}, err
	}
	for _, e := range known {
		if e.SHA256.Equal(sum) {
			e.Stat = stampOf(fi)
			return e, nil
		}
	}
	return entry{SHA256: sum, Size: fi.Size(), Confirmed: true, Stat: stampOf(fi)}, nil
}

// hash returns the digest of a file.
func (t *target) hash(path string, alg checksum.Algorithm) (checksum.Digest, error) {
	f, err := t.sys.open(path)
	if err != nil {
		return checksum.Digest{}, failed("read", path, err)
	}
	defer func() { _ = f.Close() }()
	h := alg.New()
	if _, err := copyBuffer(h, f); err != nil {
		return checksum.Digest{}, failed("read", path, err)
	}
	return checksum.Of(alg, h), nil
}

// intact reports whether the slot of d holds d.
func (t *target) intact(d checksum.Digest) bool {
	if d.Algorithm() != checksum.SHA256 {
		return false
	}
	fi, err := t.sys.lstat(t.slot(d))
	if err != nil || !fi.Mode().IsRegular() {
		return false
	}
	got, err := t.hash(t.slot(d), checksum.SHA256)
	return err == nil && got.Equal(d)
}

// settle brings record and target together after whatever happened since: a run
// that was killed, a file that somebody put there by hand. The updater's lock is
// held. A trial that goes on is ErrOnTrial.
func (t *target) settle(ctx context.Context) (record, error) {
	release, err := t.acquireState(ctx)
	if err != nil {
		return record{}, err
	}
	r, err := t.heal()
	release()
	if err == nil && r.Phase == phaseTrial {
		err = failed("check record", t.record(), ErrOnTrial)
	}
	if err != nil {
		return record{}, err
	}
	_, err = t.sys.lstat(t.target)
	r.missing = errors.Is(err, fs.ErrNotExist)
	if err := t.keepSalvaged(r); err != nil {
		return record{}, err
	}
	return r, t.sweep(r)
}

// heal makes a record that is true, and returns it. The record's lock is held.
func (t *target) heal() (record, error) {
	r, err := t.read()
	switch {
	case errors.Is(err, errDamaged):
		err = t.change(t.adopt)
	case err != nil:
	case r.Phase == phaseTrial:
		err = t.finish(r)
	case r.Phase == phaseStable && !t.holds(r.Current):
		err = t.change(t.adopt)
	}
	if err != nil {
		return record{}, err
	}
	if r, err = t.read(); err != nil || r.Phase != "" {
		return r, err
	}
	// None: in memory only, unless there is more to keep than the target.
	if err := t.adopt(&r); err != nil {
		return record{}, err
	}
	if len(r.Good) > 0 {
		return r, t.change(t.adopt)
	}
	return r, nil
}

// finish ends a switch that a killed run left unfinished, and a trial that is over
// or that somebody ended by putting a third file at the target.
func (t *target) finish(r record) error {
	if r.Trial.Max == 0 && !r.Trial.Expired {
		if err := t.sys.syncDir(t.dir); err != nil { // what is seen here must be durable before it is recorded
			return failed("check target", t.dir, err)
		}
		return t.change(t.finished)
	}
	there, err := t.identify(r)
	if err != nil {
		return err
	}
	if d := there.SHA256; !d.IsZero() && !d.Equal(r.Trial.Fallback) && !d.Equal(r.Trial.Candidate.SHA256) {
		return t.change(t.stay) // somebody put a third file there: that stays
	}
	if !r.Trial.Expired {
		return nil // a trial that goes on
	}
	return t.leave(r)
}

// leave goes back from the candidate to the best program that is whole. Without
// one, what is at the target stays: it runs, perhaps.
func (t *target) leave(r record) error {
	fallback, err := t.wayBack(r)
	if err == nil {
		err = t.goBack(fallback, r.Trial)
	}
	if isErr(err, ErrDamaged) {
		t.log.Warn("there is no way back: keeping what is there", "path", t.target, "error", err)
		return t.change(t.stay)
	}
	return err
}

// wayBack returns the fallback of the trial, or a good program when that is damaged.
func (t *target) wayBack(r record) (checksum.Digest, error) {
	all := []checksum.Digest{r.Trial.Fallback}
	for _, e := range r.Good {
		all = append(all, e.SHA256)
	}
	for _, d := range all {
		if d.Equal(r.Trial.Candidate.SHA256) || !d.Equal(r.Trial.Fallback) && r.rejection(d).bars() {
			continue
		}
		if t.whole(d) {
			return d, nil
		}
		t.log.Warn("a previous program is damaged", "path", t.slot(d))
	}
	return checksum.Digest{}, failed("verify previous program", t.slot(r.Trial.Fallback), ErrDamaged)
}

// whole reports whether d is on disk, intact, as a slot, as the way back or as the target.
func (t *target) whole(d checksum.Digest) bool {
	if t.intact(d) {
		return true
	}
	for _, path := range []string{t.rollback, t.target} {
		if got, err := t.hash(path, checksum.SHA256); err == nil && got.Equal(d) {
			return true
		}
	}
	return false
}

// stay forgets a switch and keeps what is at the target.
func (t *target) stay(r *record) error {
	r.Phase, r.Trial = phaseStable, nil
	return t.adopt(r)
}

// finished is the record after a switch of which nobody knows how far it came.
func (t *target) finished(r *record) error {
	if r.Trial == nil {
		return nil
	}
	tr := *r.Trial
	there, err := t.identify(*r)
	if err != nil {
		return err
	}
	switch {
	case tr.Expired && there.SHA256.Equal(tr.Fallback):
		r.revert(tr.Fallback)
		return nil
	case !tr.Expired && there.SHA256.Equal(tr.Candidate.SHA256):
		tr.Candidate.Stat, tr.Candidate.Confirmed = there.Stat, true
		r.succeed(tr.Candidate)
		t.event(r, outcomeUpdated, "finished an interrupted update")
		return nil
	}
	return t.stay(r)
}

// adopt takes what is at the target for the current program, whoever put it
// there: it is the operator's choice, and never undone.
func (t *target) adopt(r *record) error {
	there, err := t.identify(*r)
	if err != nil {
		return err
	}
	if r.missing = there.SHA256.IsZero(); r.missing { // the record keeps its word for a way back
		r.Phase = phaseStable
		if r.Current == nil && len(r.Good) == 0 { // it has none: then what is left must not be swept
			r.Good, err = t.salvage(checksum.Digest{}, r.damaged)
		}
		return err
	}
	switch {
	case r.Current == nil:
		if there.Version == "" {
			there.Version = clip(t.version, maxVersion)
		}
		r.stable(there)
		if len(r.Good) == 0 {
			if r.Good, err = t.salvage(there.SHA256, r.damaged); err != nil {
				return err
			}
		}
		if r.damaged {
			t.event(r, outcomeAdopted, "the record was damaged: rejections are lost, and a trial if there was one; nobody knows whether this program works")
		}
	case r.Current.SHA256.Equal(there.SHA256):
		r.Current.Stat = there.Stat
	case slices.ContainsFunc(r.Good, func(e entry) bool { return e.SHA256.Equal(there.SHA256) }):
		t.log.Warn("somebody went back by hand: keeping that", "path", t.target, "sha256", there.SHA256.Hex())
		r.revert(there.SHA256)
		r.Current.Stat = there.Stat
		t.event(r, outcomeAdopted, "the target was put back by hand")
	default:
		t.log.Warn("somebody replaced the target: keeping what is there", "path", t.target, "sha256", there.SHA256.Hex())
		if !t.intact(r.Current.SHA256) {
			r.Current = nil
		}
		r.succeed(there)
		t.event(r, outcomeAdopted, "the target was replaced by hand")
	}
	return nil
}

const (
	outcomeUpdated    = "updated"
	outcomeRolledBack = "rolled back"
	outcomeAdopted    = "adopted"
	outcomeOnTrial    = "on trial"
	outcomeConfirmed  = "confirmed"
	outcomeDropped    = "trial ended"
	outcomeCleared    = "cleared"

	probePrefix = ".selfupdate-probe-"
)

func (t *target) event(r *record, outcome, reason string) {
	r.Last = &event{Outcome: outcome, Reason: clip(reason, 256), At: t.sys.now().UTC().Truncate(time.Second)}
}

// sweep removes what killed runs left and the slots that the record doesn't name,
// once that is durable: after a power cut, the one before it would name them.
func (t *target) sweep(r record) error {
	release, err := t.acquireState(context.Background()) // a start makes temporary names under it
	if err != nil {
		return err
	}
	defer release()
	if now, err := t.read(); err == nil && now.Phase != "" {
		r = now
	}
	durable := false
	keep := map[string]bool{}
	for _, d := range r.slots() {
		keep[d.Hex()] = true
	}
	if d := t.slotOf(t.rollback); !d.IsZero() { // it tells whether the way back is what it was
		keep[d.Hex()] = true
	}
	for _, dir := range []struct {
		path  string
		stale func(name string) bool
	}{
		{t.slots, func(name string) bool { return !keep[name] }},
		{t.state, func(name string) bool { return strings.HasPrefix(name, ".tmp-") }},
		{t.dir, func(name string) bool { return strings.HasPrefix(name, probePrefix) }},
	} {
		names, err := t.sys.readDir(dir.path)
		if err != nil {
			return failed("clean", dir.path, err)
		}
		for _, name := range names {
			if !dir.stale(name) {
				continue
			}
			if !durable {
				if err := t.settled(); err != nil {
					return err
				}
				durable = true
			}
			path := dir.path + string(separator) + name
			if err := t.sys.remove(path); err != nil {
				t.log.Warn("a leftover stays", "path", path, "error", err) // not worth an update
			}
		}
	}
	return nil
}
