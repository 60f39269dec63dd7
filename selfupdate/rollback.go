package selfupdate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"

	"github.com/metal-stack/selfreconcile/checksum"
)

// RollbackOptions are the arguments of [Rollback].
type RollbackOptions struct {
	Target string // as in [Config]; ignored by [Updater.Rollback]
	Reason string // for the record and for people

	// From, when set, is the only program to leave, by its SHA-256 or the publisher's
	// digest. When another one is at the target by now it is [ErrChanged], and nothing
	// is done: a trial may just have ended by itself.
	From checksum.Digest

	// KeepAllowed leaves the digest that is left installable. By default it is
	// rejected, since the next reconcile would install it again.
	KeepAllowed bool

	Log *slog.Logger // ignored by [Updater.Rollback]
}

// Rollback puts the program before the current one back, verified, and rejects
// the digest that it leaves. It needs neither network nor the current program,
// which may be gone or broken, and it works on a full disk. Called again it goes
// back further; with nothing left it returns [ErrNoPrevious]. After an error the
// target is what it was, except where [Error.State] says otherwise; a run that
// was killed half-way is finished by the next one.
func Rollback(ctx context.Context, opts RollbackOptions) (Result, error) {
	u, err := bare(opts.Target, opts.Log)
	if err != nil {
		return Result{}, err
	}
	return u.Rollback(ctx, opts)
}

// Rollback is [Rollback] for the Updater's target.
func (u *Updater) Rollback(ctx context.Context, opts RollbackOptions) (Result, error) {
	res, err := u.rollback(ctx, opts, classManual, "")
	res, err = u.restartAfter(ctx, res, err)
	res.RestartNeeded = u.stale()
	return res, err
}

func (u *Updater) rollback(ctx context.Context, opts RollbackOptions, class, id string) (Result, error) {
	t := u.target
	_, err := t.sys.lstat(t.state)
	if _, lerr := t.sys.lstat(t.rollback); errors.Is(err, fs.ErrNotExist) && errors.Is(lerr, fs.ErrNotExist) {
		return Result{}, failed("read record", t.state, fmt.Errorf("%w: no update was made here", ErrNoPrevious))
	}
	if err := t.checkDir(); err != nil && !isErr(err, ErrNoSpace) {
		return Result{}, err
	}
	release, err := t.acquire()
	if err != nil {
		return Result{}, err
	}
	defer release()
	left, fallback, err := t.goBackOne(ctx, opts, class, id)
	if err != nil {
		return Result{}, err
	}
	r, err := t.read()
	if err == nil {
		err = t.sweep(r)
	}
	if err != nil {
		t.log.Warn("cleaning up has to wait for the next run", "error", err)
	}
	return u.result(RolledBack, fallback, left.Version), nil
}

// goBackOne goes back one program, from the candidate of a trial or from the
// current one, and returns which it left for which.
func (t *target) goBackOne(ctx context.Context, opts RollbackOptions, class, id string) (left, fallback entry, err error) {
	service := !t.own && t.isService() // whose next start is seen, and so ends the pending restart
	before, _ := t.read()
	r, err := t.settle(ctx)
	onTrial := isErr(err, ErrOnTrial)
	if err != nil && !onTrial {
		return left, fallback, err
	}
	release, err := t.acquireState(ctx)
	if err != nil {
		return left, fallback, err
	}
	defer release()
	if onTrial {
		if r, err = t.read(); err != nil {
			return left, fallback, err
		}
		onTrial = r.Phase == phaseTrial
	}
	if id != "" && (!onTrial || r.Trial.ID != id) {
		return left, fallback, failed("record", t.record(), ErrChanged)
	}
	if tr := before.Trial; id == "" && !onTrial && tr != nil && tr.Expired && r.Current != nil && !tr.candidateIs(r.Current.SHA256) {
		return tr.Candidate, *r.Current, t.changeInRoom(func(r *record) error { return t.leftAlready(r, tr.Candidate, opts, service) })
	}
	if r.missing && !onTrial && len(r.Good) == 0 && r.Current != nil {
		_, err := t.putBack(r)
		return entry{}, *r.Current, err
	}
	if left, fallback, err = t.backFrom(r, onTrial); err != nil {
		return left, fallback, err
	}
	if !opts.From.IsZero() && !left.is(opts.From) {
		return left, fallback, failed("check target", t.target, fmt.Errorf("%w: version %s is there, which is not the one to leave", ErrChanged, cmpText(left.Version, "unknown")))
	}
	intent := func(r *record) error {
		switch {
		case r.Trial != nil && (onTrial || r.Trial.Expired) && r.Trial.Candidate.SHA256.Equal(left.SHA256):
		case !onTrial && r.Phase != phaseTrial && r.Current != nil && r.Current.SHA256.Equal(left.SHA256):
			r.Phase, r.Trial = phaseTrial, &trial{ID: tempName(""), Candidate: left}
		default:
			return failed("record", t.record(), ErrBusy)
		}
		tr := r.Trial
		tr.Fallback, tr.Expired, tr.Class = fallback.SHA256, true, class
		r.PendingRestart = r.PendingRestart || t.restarts || service
		tr.Keep, tr.Reason = opts.KeepAllowed, clip(opts.Reason, maxReason)
		return nil
	}
	err = t.change(intent)
	switch {
	case isErr(err, ErrNoSpace):
		err = t.goBackFull(intent, left, fallback)
	case err == nil:
		err = t.goBack(fallback.SHA256, nil)
	}
	if err != nil {
		err = t.backAborted(err, r)
	}
	return left, fallback, err
}

// leftAlready is for a program that was on its way back when somebody asked for
// that: going back one more would leave a good one.
func (t *target) leftAlready(r *record, c entry, opts RollbackOptions, service bool) error {
	r.PendingRestart = r.PendingRestart || t.restarts || service
	if opts.KeepAllowed {
		r.Rejected = slices.DeleteFunc(r.Rejected, func(j rejection) bool { return j.SHA256.Equal(c.SHA256) })
		return nil
	}
	r.reject(rejection{SHA256: c.SHA256, Published: c.Published, Inside: c.Inside, Version: c.Version, Class: classManual, Verdict: verdictManual, Reason: clip(opts.Reason, maxReason)})
	if r.Spare != nil && r.Spare.SHA256.Equal(c.SHA256) {
		r.Spare = nil
	}
	return nil
}

// backFrom returns the program to leave and the one to go back to.
func (t *target) backFrom(r record, onTrial bool) (left, fallback entry, err error) {
	if !onTrial {
		if fallback, err = t.fallback(r); err != nil {
			return left, fallback, err
		}
		return *r.Current, fallback, nil
	}
	d, err := t.wayBack(r)
	if err != nil {
		return left, fallback, fmt.Errorf("%w: %w", ErrNoPrevious, err)
	}
	known := r.Good
	if r.Current != nil {
		known = append([]entry{*r.Current}, known...)
	}
	for _, e := range known {
		if e.SHA256.Equal(d) {
			return r.Trial.Candidate, e, nil
		}
	}
	return left, fallback, failed("find previous program", t.slots, ErrNoPrevious)
}

// backAborted forgets the intent of a way back that failed before anything
// happened: what returned an error must not happen later by itself. A trial goes on.
func (t *target) backAborted(err error, before record) error {
	var e *Error
	if errors.As(err, &e) && e.State != Unchanged {
		return err // it happened, and the next run records it
	}
	return join(err, t.change(func(r *record) error {
		if r.Phase != phaseTrial {
			return nil
		}
		r.PendingRestart = before.PendingRestart
		if before.Phase == phaseTrial && r.Trial != nil {
			r.Trial = before.Trial
			return nil
		}
		return t.stay(r)
	}))
}

// goBackFull is the way back on a full disk, where not even the intent can be
// written: the rename first, which needs no space, then the record in the space
// of the program that was left.
func (t *target) goBackFull(intent func(*record) error, left, fallback entry) error {
	t.log.Warn("the disk is full: going back before it is recorded", "path", t.target)
	st, err := t.restore(fallback.SHA256)
	if err != nil {
		return err
	}
	if err := t.sys.remove(t.slot(left.SHA256)); err != nil {
		return failedIn(Restored, "make room", t.slot(left.SHA256), err)
	}
	err = t.change(intent)
	if err == nil {
		err = t.recordBack(fallback.SHA256, st, nil)
	}
	return failedIn(Restored, "record", t.record(), err)
}

// fallback returns the newest good program that is whole.
func (t *target) fallback(r record) (entry, error) {
	if r.Current == nil || len(r.Good) == 0 {
		return entry{}, failed("find previous program", t.slots, ErrNoPrevious)
	}
	for _, e := range r.Good {
		if r.rejection(e.SHA256).bars() {
			continue
		}
		if t.intact(e.SHA256) {
			return e, nil
		}
		if got, err := t.hash(t.rollback, checksum.SHA256); err == nil && got.Equal(e.SHA256) {
			return e, nil
		}
		t.log.Warn("a previous program is damaged", "path", t.slot(e.SHA256))
	}
	return entry{}, failed("find previous program", t.slots, fmt.Errorf("%w: %w", ErrNoPrevious, ErrDamaged))
}

// Rejection is a digest that is not installed again, or, with the verdict
// "pending" or "inconclusive", not before something else happens.
type Rejection struct {
	SHA256    checksum.Digest `json:"sha256"`
	Published checksum.Digest `json:"published,omitzero"` // the publisher's own digest, when that is another
	Version   string          `json:"version,omitempty"`  // as it was called
	Class     string          `json:"class"`              // exec | crash | hang | unhealthy | manual
	Reason    string          `json:"reason,omitempty"`

	// Verdict is "guilty" or "manual": not installed again. "pending": not before
	// the program that came back has confirmed itself. "inconclusive": that one was no
	// better, or this was the first such failure, so it is tried again, Retries times
	// at most.
	Verdict string `json:"verdict"`
	Retries int    `json:"retries,omitempty"` // left; 0 unless inconclusive
}

// ClearOptions are the arguments of [Clear].
type ClearOptions struct {
	Target string          // as in [Config]; ignored by [Updater.Clear]
	Digest checksum.Digest // the one to allow again, ours or the publisher's
	All    bool            // every one

	// Token, when not empty, makes this happen once: nothing is cleared when the
	// last call with a token had the same. A controller passes what its resource says.
	Token string
	Log   *slog.Logger // ignored by [Updater.Clear]
}

// Clear lifts rejections and returns those that it lifted; none is no error. The
// newest 16 rejections are remembered.
func Clear(ctx context.Context, opts ClearOptions) ([]Rejection, error) {
	u, err := bare(opts.Target, opts.Log)
	if err != nil {
		return nil, err
	}
	return u.Clear(ctx, opts)
}

// Clear is [Clear] for the Updater's target.
func (u *Updater) Clear(ctx context.Context, opts ClearOptions) ([]Rejection, error) {
	if opts.All == !opts.Digest.IsZero() {
		return nil, errors.New("clear takes a digest or all")
	}
	t := u.target
	if _, err := t.sys.lstat(t.record()); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var cleared []Rejection
	err := t.update(ctx, func(r *record) error {
		if r.Phase == "" || opts.Token != "" && r.RetryToken == clip(opts.Token, maxVersion) {
			return nil
		}
		if opts.Token != "" {
			r.RetryToken = clip(opts.Token, maxVersion)
		}
		r.Rejected = slices.DeleteFunc(r.Rejected, func(j rejection) bool {
			hit := opts.All || j.is(opts.Digest)
			if hit {
				cleared = append(cleared, j.public())
			}
			return hit
		})
		refusals := len(r.Refusals)
		r.Refusals = slices.DeleteFunc(r.Refusals, func(f refusal) bool { return opts.All || f.Want.Equal(opts.Digest) })
		if len(cleared) > 0 || refusals > len(r.Refusals) {
			t.event(r, outcomeCleared, "")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return cleared, nil
}

func (j rejection) public() Rejection {
	p := Rejection{SHA256: j.SHA256, Published: j.Published, Version: j.Version, Class: j.Class, Reason: j.Reason, Verdict: j.Verdict}
	if j.Verdict == verdictInconclusive {
		p.Retries = max(0, maxRetries-j.Tries)
	}
	return p
}
