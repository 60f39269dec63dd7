package selfupdate

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/checksum"
)

// The invariants of docs/design.md, each a function, over what is on a file system.

// view is a file system to look at: the live one, or what a power cut would leave.
type view struct {
	*target
	where string
	r     record
	err   error
	at    string
}

func (w *world) look(dir, where string) view {
	t, err := openTarget(filepath.Join(dir, "app"), nil, system())
	require.NoError(w.t, err)
	v := view{target: t, where: where}
	v.r, v.err = t.read()
	v.at = fileName(t.target)
	return v
}

func (v view) onTrial() bool { return v.err == nil && v.r.Phase == phaseTrial && v.r.Trial.Max > 0 }

// has reports whether there is a whole slot of a program.
func (v view) has(name string) bool {
	return name != "" && name != "?" && fileName(v.slot(digestNamed(name))) == name
}

// hasAnother reports whether another program than d that the record names is whole.
func (w *world) hasAnother(v view, d checksum.Digest) bool {
	return slices.ContainsFunc(v.r.slots(), func(o checksum.Digest) bool { return !o.Equal(d) && w.wholeBut(v, o) })
}

// wholeBut reports whether d is whole, in its slot or at the target, but for what
// somebody did to it by hand.
func (w *world) wholeBut(v view, d checksum.Digest) bool {
	name := castName(d)
	return v.has(name) || name != "" && name == v.at || w.spoiled[name]
}

func (v view) candidate() string { return castName(v.r.Trial.Candidate.SHA256) }

// check looks at the machine as it is and as a power cut now would leave it.
func (w *world) check() {
	if r, err := w.read(); err == nil && r.Phase == phaseTrial && w.spoiled[castName(r.Trial.Fallback)] {
		w.adopted(castName(r.Trial.Candidate.SHA256)) // there may be nothing else to run
	}
	w.onDisk(w.look(w.dir, "live"))
	for seed := range uint64(3) { // nothing, all and some of what is not flushed survives
		if len(w.lossy.pending) == 0 && seed > 0 {
			break
		}
		dir := w.dir + "-peek"
		require.NoError(w.t, os.Mkdir(dir, 0o755))
		w.lossy.after(w.t, dir, w.survivors(seed))
		w.onDisk(w.look(dir, fmt.Sprintf("after a power cut (%d)", seed)))
		require.NoError(w.t, os.RemoveAll(dir))
	}
	w.since()
}

func (w *world) onDisk(v view) {
	w.i1(v)
	w.i2(v)
	w.i4(v)
	w.i5(v)
	w.i7(v)
	w.i8(v)
	w.i9(v)
	w.i10(v)
}

// I1: the target path always names a complete verified program.
func (w *world) i1(v view) {
	if v.at == "?" || v.at == "" && !w.gone {
		w.fail("I1", "%s: no complete program at the target: %q", v.where, v.at)
	}
}

// I2: in a trial a confirmed, verified fallback exists in another inode and can be
// restored without allocating.
func (w *world) i2(v view) {
	if !v.onTrial() {
		return
	}
	fallback := castName(v.r.Trial.Fallback)
	if w.spoiled[fallback] {
		return // by hand: nothing can hold then but I1
	}
	if !w.confirmed[fallback] {
		w.fail("I2", "%s: the fallback %s was never confirmed", v.where, fallback)
	}
	if !v.has(fallback) {
		w.fail("I2", "%s: the fallback %s has no whole slot", v.where, fallback)
	}
	if v.at != v.candidate() {
		return
	}
	if v.r.Trial.Expired && v.r.Current != nil && w.spoiled[castName(v.r.Current.SHA256)] {
		return // the one before it is damaged, and the way back is its: a rollback chose another, which has its slot
	}
	if got := fileName(v.rollback); got != fallback || v.same(v.rollback, v.target.target) {
		w.fail("I2", "%s: the way back is %q, not %s", v.where, got, fallback)
	}
}

// I4: an unconfirmed program is never at the target without a durable record naming it.
func (w *world) i4(v view) {
	if v.at == "" || w.confirmed[v.at] || v.err == nil && v.r.Phase == phaseTrial && v.candidate() == v.at {
		return
	}
	w.fail("I4", "%s: %s is at the target, was never confirmed, and no record names it: %v", v.where, v.at, v.err)
}

// I5: once stable after a way back the bad digest is durably rejected.
func (w *world) i5(v view) {
	if v.err != nil || v.r.Phase != phaseStable {
		return
	}
	for name := range w.failed {
		if v.r.Current != nil && castName(v.r.Current.SHA256) == name {
			continue
		}
		if v.r.rejection(digestNamed(name)) == nil {
			w.fail("I5", "%s: %s was left for a failure and is not rejected", v.where, name)
		}
	}
}

// I7: after Confirm returned nil, no automatic way back.
func (w *world) i7(v view) {
	if w.kept != "" && v.at != w.kept {
		w.fail("I7", "%s: %s had been confirmed, and %s is at the target", v.where, w.kept, v.at)
	}
}

// I8: whatever the record names exists, intact.
func (w *world) i8(v view) {
	if v.err != nil || v.r.Phase == "" {
		return
	}
	for _, d := range v.r.slots() {
		name := castName(d)
		switch {
		case d.IsZero(), w.spoiled[name], v.has(name):
		case fileName(v.rollback) == name: // it was salvaged
		case w.gave[name] && (!v.r.needs(d) || v.at != name && w.hasAnother(v, d)):
			// on a full disk what was left, or nobody needs, makes room before the record says so
		case v.r.Current != nil && v.r.Current.SHA256.Equal(d) && v.at == name:
		case v.r.Phase == phaseTrial && v.r.Trial.Expired && v.candidate() == name && v.at != name && w.wholeBut(v, v.r.Trial.Fallback):
			// it was just left, and may have had no slot
		default:
			w.fail("I8", "%s: the record names %s, which is not there", v.where, name)
		}
	}
}

// I9: the record is readable, or absent with the target runnable; damaged bytes
// never yield a trial.
func (w *world) i9(v view) {
	if v.err != nil && !w.corrupt {
		w.fail("I9", "%s: the record can't be read: %v", v.where, v.err)
	}
	if v.err == nil && v.r.Phase == "" && v.at == "" && !w.gone {
		w.fail("I9", "%s: neither a record nor a program", v.where)
	}
	if errors.Is(v.err, errDamaged) && v.r.Phase == phaseTrial {
		w.fail("I9", "%s: damaged bytes yield a trial", v.where)
	}
}

// I10: we never write the desired version: beside the target there are only the
// names that are documented.
func (w *world) i10(v view) {
	names, err := os.ReadDir(v.dir)
	require.NoError(w.t, err)
	for _, e := range names {
		if !slices.Contains([]string{"app", ".app.rollback", ".app.d", ".new"}, e.Name()) && !strings.HasPrefix(e.Name(), probePrefix) {
			w.fail("I10", "%s: there is a file %s", v.where, e.Name())
		}
	}
}

// since compares with what was before the action: what must not change by itself,
// and what a switch needs.
func (w *world) since() {
	r, err := w.read()
	at := w.at()
	defer func() { w.before, w.was = r, at }()
	if at != "" && w.lossy.durable[w.guard().target.target] != nil { // put back, and not by a start that was killed half-way
		w.gone = false
	}
	if err != nil {
		r = record{}
		return
	}
	if n := w.lossy.durable[w.guard().target.record()]; n == nil || decodes(n.flushed) { // else a power cut brings the damaged one back
		w.corrupt = false
	}
	line, err := encodeRecord(r)
	require.NoError(w.t, err)
	if !w.cut || !w.records[string(line)] { // else a power cut brought an earlier record back
		w.i5Since(r)
	}
	w.records[string(line)] = true
	w.i6Since(r)
	w.forget(r)
	if len(w.lossy.pending) == 0 {
		maps.DeleteFunc(w.gave, func(name string, _ bool) bool { return !slices.ContainsFunc(r.slots(), digestNamed(name).Equal) })
	}
}

// i5Since notes the failed: a trial that had used up its starts or its time is over.
func (w *world) i5Since(r record) {
	b := w.before
	if w.hand || b.Phase != phaseTrial || b.Trial.Max == 0 || r.Phase != phaseStable || r.Current == nil {
		return
	}
	tr := b.Trial
	over := tr.Expired || r.Last != nil && r.Last.Outcome == outcomeRolledBack
	if !over || tr.Keep || w.spoiled[castName(tr.Fallback)] || !r.Current.SHA256.Equal(tr.Fallback) {
		return
	}
	name := castName(tr.Candidate.SHA256)
	if r.rejection(tr.Candidate.SHA256) == nil {
		w.fail("I5", "the trial of %s failed, and it is not rejected", name)
	}
	w.failed[name] = true
	delete(w.well, name)
}

// I6: what is pending, guilty or rolled back by hand is never switched to; what was
// inconclusive at most three times, each only after the fallback confirmed.
func (w *world) i6Since(r record) {
	b := w.before
	if r.Phase != phaseTrial || w.trials[r.Trial.ID] || r.Trial.Expired { // one on its way back is no switch; a power cut may bring each back
		return
	}
	w.trials[r.Trial.ID] = true
	name := castName(r.Trial.Candidate.SHA256)
	if j := b.rejection(r.Trial.Candidate.SHA256); b.Phase == phaseStable && j.bars() {
		w.fail("I6", "%s has the verdict %q and %d tries, and is tried again", name, j.Verdict, j.Tries)
	}
	if !w.failed[name] {
		return
	}
	if !w.well[name] {
		w.fail("I6", "%s failed, and is tried again before the program that came back was confirmed", name)
	}
	if w.retried[name]++; w.retried[name] > maxRetries {
		w.fail("I6", "%s is tried again for the %dth time", name, w.retried[name])
	}
}

// forget drops the ghosts of what an operator chose.
func (w *world) forget(r record) {
	if r.Current == nil || r.Phase != phaseStable {
		return
	}
	name := castName(r.Current.SHA256)
	delete(w.failed, name)
	delete(w.retried, name)
}

func decodes(record []byte) bool {
	_, err := decodeRecord(record)
	return err == nil
}
