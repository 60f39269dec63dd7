package selfupdate

import (
	"context"
	"fmt"
	"strings"

	"github.com/metal-stack/selfreconcile/checksum"
)

// Outcome is what [Updater.Apply] or [Updater.Rollback] did.
type Outcome string

// The outcomes.
const (
	UpToDate   Outcome = "up to date"
	Updated    Outcome = "updated"
	RolledBack Outcome = "rolled back"
)

// Result says what is at the target now.
type Result struct {
	Outcome  Outcome         `json:"outcome"`
	Version  string          `json:"version"`
	Previous string          `json:"previous,omitempty"` // the version before it; "" when unknown or the same
	SHA256   checksum.Digest `json:"sha256"`             // of the program at the target
	Policy   string          `json:"policy,omitempty"`   // the trust that held, in words
	URL      string          `json:"url,omitempty"`      // where it came from
	Size     int64           `json:"size"`               // in bytes

	// RestartNeeded says that the running process is the target's program, but not
	// the file that is there now. Exit, or exec the target, to run that.
	RestartNeeded bool `json:"restart_needed"`

	// OnTrial says that the program at the target has yet to confirm itself.
	OnTrial bool `json:"on_trial,omitempty"`
}

// Apply brings the target to the release. It is idempotent: when the target is
// that release already the outcome is [UpToDate], without any request if version
// and URL are those recorded. Versions are opaque: an older one is as good.
//
// Nothing changes at the target's path before the new file is downloaded,
// verified and on the disk; then one rename does (two on Windows). After an error
// nothing staged remains and the target is unchanged, except where [Error.State]
// says otherwise. The program that was there is kept for [Updater.Rollback].
//
// It takes as long as the source's limits allow, which for a slow or stalled server
// is minutes: give it a context of its own with a timeout where something else waits
// for it. What is given up leaves nothing behind.
//
// Errors have a class: see [ClassOf]. Apply never exits, restarts or prints;
// after [Updated] it is the caller's turn. A failed Apply is no reason to stop,
// unless [Result.RestartNeeded] says so, which holds beside an error too: somebody
// may have rolled the running program back.
func (u *Updater) Apply(ctx context.Context, rel Release) (Result, error) {
	res, err := u.apply(ctx, rel)
	res, err = u.restartAfter(ctx, res, err)
	res.RestartNeeded = u.stale()
	return res, err
}

func (u *Updater) apply(ctx context.Context, rel Release) (Result, error) {
	if err := u.admit(rel); err != nil {
		return Result{}, err
	}
	if r, ok := u.unchanged(rel); ok {
		res := u.result(UpToDate, *r.Current, "")
		res.OnTrial = r.Phase == phaseTrial
		return res, nil
	}
	t := u.target
	asset, err := u.preflight(rel)
	if err != nil {
		return Result{}, err
	}
	release, err := t.acquire()
	if err != nil {
		return Result{}, err
	}
	defer release()
	r, err := t.settle(ctx)
	if isErr(err, ErrOnTrial) && u.onTrial(ctx, rel) {
		if r, ok := u.unchanged(rel); ok {
			res := u.result(UpToDate, *r.Current, "")
			res.OnTrial = true
			return res, nil
		}
	}
	if err != nil {
		return Result{}, err
	}
	d, err := u.decide(ctx, rel, asset, r)
	if err != nil {
		return Result{}, err
	}
	switch d.action {
	case NothingToDo:
		return u.note(ctx, rel, d)
	case IsRejected:
		return Result{}, failed("install", d.asset.URL, fmt.Errorf("%w: %s", ErrRejected, d.reason))
	}
	if err := u.heldBack(r, d); err != nil {
		return Result{}, err
	}
	s, err := u.obtain(ctx, rel, d)
	if err != nil {
		return Result{}, u.refused(ctx, rel, r, d, s, err)
	}
	if known, res, err := u.known(ctx, rel, d, s, r); known {
		return res, join(err, t.sys.remove(s.path))
	}
	e := entry{Version: rel.Version, URL: clip(d.asset.URL, maxURL), Policy: clip(d.policy, 256), Published: s.published, Inside: d.inside}
	tr := u.cfg.Trial.begun(r)
	tr.Outside = tr.Outside || tr.Max > 0 && u.outside()
	if err := t.install(ctx, s, e, r, tr); err != nil {
		return Result{}, err
	}
	before := ""
	if r.Current != nil {
		before = r.Current.Version
	}
	e.SHA256, e.Size = s.sha256, s.size
	t.log.Debug("updated", "path", t.target, "version", rel.Version, "sha256", e.SHA256.Hex())
	res := u.result(Updated, e, before)
	res.OnTrial = tr.Max > 0
	return res, nil
}

// known reports whether the staged program turned out to be one that is known
// under another digest of its publisher: the one that is there, or a rejected one.
// That digest is recorded, so that it is known before the download next time.
func (u *Updater) known(ctx context.Context, rel Release, d decision, s staged, seen record) (bool, Result, error) {
	if seen.Current != nil && seen.Current.SHA256.Equal(s.sha256) && u.target.holds(seen.Current) {
		res, err := u.note(ctx, rel, d)
		return true, res, err
	}
	rejected := ""
	err := u.target.update(ctx, func(r *record) error {
		for i := range r.Rejected {
			if j := &r.Rejected[i]; j.is(s.sha256) {
				if j.bars() {
					rejected = j.text()
				}
				if !s.published.IsZero() {
					j.Published, j.Inside = s.published, d.inside
				}
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return true, Result{}, err
	case rejected != "":
		return true, Result{}, failed("install", d.asset.URL, fmt.Errorf("%w: %s", ErrRejected, rejected))
	}
	return false, Result{}, nil
}

// admit checks the arguments and asks the caller's policy.
func (u *Updater) admit(rel Release) error {
	if len(rel.Version) > maxVersion || strings.ContainsFunc(rel.Version, isControl) {
		return fmt.Errorf("a version has at most %d bytes and no control characters", maxVersion)
	}
	if u.cfg.Refuse != nil {
		if err := u.cfg.Refuse(u.target.target); err != nil {
			return failed("check policy", u.target.target, fmt.Errorf("%w: %w", ErrManaged, err))
		}
	}
	return nil
}

func isControl(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 || r == '\ufffd' }

// unchanged reports, without lock, write or request, whether the target is what
// this very release installed. The candidate of a trial counts: it is there.
func (u *Updater) unchanged(rel Release) (r record, ok bool) {
	r, err := u.target.read()
	if err != nil {
		return r, false
	}
	if r.Phase == phaseTrial && r.Trial.Max > 0 && !r.Trial.Expired {
		r.Current = &r.Trial.Candidate
	} else if r.Phase != phaseStable || r.Current == nil {
		return r, false
	}
	asset, err := u.choose(rel)
	return r, err == nil && u.recorded(rel, asset, u.seen(r))
}

// onTrial notes what the candidate's file is known by, when that is not what was
// recorded: it had to be a copy, or somebody touched it.
func (u *Updater) onTrial(ctx context.Context, rel Release) bool {
	here := false
	err := u.target.update(ctx, func(r *record) error {
		if r.Phase != phaseTrial || r.Trial.Max == 0 || r.Trial.Expired || r.Trial.Candidate.Version != rel.Version {
			return nil
		}
		there, err := u.target.identify(*r)
		if here = err == nil && r.Trial.candidateIs(there.SHA256); here {
			r.Trial.Candidate.Stat = there.Stat
		}
		return err
	})
	return err == nil && here
}

func (u *Updater) recorded(rel Release, asset Asset, r record) bool {
	pinned := u.cfg.Trust.pinned
	c := r.Current
	if c == nil || !u.target.holds(c) || !pinned.IsZero() && !c.is(pinned) {
		return false
	}
	if !pinned.IsZero() && c.Version == rel.Version {
		return true
	}
	return !u.cfg.Refresh && u.cfg.Trust.satisfied(c.Policy) && rel.Version != "" && asset.URL != "" &&
		c.Version == rel.Version && c.URL == asset.URL // one that did not fit into the record is never the same
}

// note records which release the target is, so that next time no request is needed.
func (u *Updater) note(ctx context.Context, rel Release, d decision) (Result, error) {
	var e entry
	err := u.target.update(ctx, func(r *record) error {
		if r.Phase == "" {
			if err := u.target.adopt(r); err != nil {
				return err
			}
		}
		c := r.Current
		if c == nil || !c.SHA256.Equal(d.here) || !u.target.holds(c) {
			return failed("record", u.target.record(), ErrChanged)
		}
		if !d.want.IsZero() {
			c.URL, c.Policy = clip(d.asset.URL, maxURL), clip(d.policy, 256)
			if rel.Version != "" {
				c.Version = rel.Version
			}
			if !c.SHA256.Equal(d.want) {
				c.Published, c.Inside = d.want, d.inside
			}
		}
		e = *c
		return nil
	})
	if err != nil {
		return Result{}, err
	}
	return u.result(UpToDate, e, ""), nil
}

func (u *Updater) result(o Outcome, e entry, before string) Result {
	res := Result{Outcome: o, Version: e.Version, SHA256: e.SHA256, Policy: e.Policy, URL: e.URL, Size: e.Size}
	if before != e.Version {
		res.Previous = before
	}
	return res
}

// stale reports whether this process runs another file than the target is now.
func (u *Updater) stale() bool {
	if !u.own || u.running == nil {
		return false
	}
	fi, err := u.target.sys.lstat(u.target.target)
	return err == nil && !sameFile(fi, u.running)
}
