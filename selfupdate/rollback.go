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
	res, err := u.rollback(ctx, opts)
	res.RestartNeeded = u.stale()
	return res, err
}

func (u *Updater) rollback(ctx context.Context, opts RollbackOptions) (Result, error) {
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
	r, err := t.settle(ctx)
	if err != nil {
		return Result{}, err
	}
	fallback, err := t.fallback(r)
	if err != nil {
		return Result{}, err
	}
	left := *r.Current
	intent := func(r *record) error {
		if r.Current == nil || !r.Current.SHA256.Equal(left.SHA256) {
			return failed("record", t.record(), ErrBusy)
		}
		r.Phase = phaseTrial
		r.Trial = &trial{ID: tempName(""), Candidate: left, Fallback: fallback.SHA256, Expired: true, Keep: opts.KeepAllowed, Reason: clip(opts.Reason, 256)}
		return nil
	}
	if err := t.update(ctx, intent); isErr(err, ErrNoSpace) {
		err = t.goBackFull(ctx, intent, left, fallback)
		if err != nil {
			return Result{}, err
		}
	} else if err != nil {
		return Result{}, err
	} else if err := t.goBack(ctx, fallback.SHA256); err != nil {
		return Result{}, t.backAborted(ctx, err)
	}
	if r, err = t.read(); err == nil {
		err = t.sweep(r)
	}
	if err != nil {
		t.log.Warn("cleaning up has to wait for the next run", "error", err)
	}
	return u.result(RolledBack, fallback, left.Version), nil
}

// backAborted forgets the intent of a way back that failed before anything
// happened: what returned an error must not happen later by itself.
func (t *target) backAborted(ctx context.Context, err error) error {
	var e *Error
	if errors.As(err, &e) && e.State != Unchanged {
		return err // it happened, and the next run records it
	}
	return errors.Join(err, t.update(context.WithoutCancel(ctx), t.stay))
}

// goBackFull is the way back on a full disk, where not even the intent can be
// written: the rename first, which needs no space, then the record in the space
// of the program that was left.
func (t *target) goBackFull(ctx context.Context, intent func(*record) error, left, fallback entry) error {
	t.log.Warn("the disk is full: going back before it is recorded", "path", t.target)
	st, err := t.restore(fallback.SHA256)
	if err != nil {
		return err
	}
	if err := t.sys.remove(t.slot(left.SHA256)); err != nil {
		return failedIn(Restored, "make room", t.slot(left.SHA256), err)
	}
	err = t.update(context.WithoutCancel(ctx), intent)
	if err == nil {
		err = t.recordBack(ctx, fallback.SHA256, st)
	}
	return failedIn(Restored, "record", t.record(), err)
}

// fallback returns the newest good program that is whole.
func (t *target) fallback(r record) (entry, error) {
	if r.Current == nil || len(r.Good) == 0 {
		return entry{}, failed("find previous program", t.slots, ErrNoPrevious)
	}
	for _, e := range r.Good {
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

// Rejection is a digest that is not installed again.
type Rejection struct {
	SHA256    checksum.Digest `json:"sha256"`
	Published checksum.Digest `json:"published,omitzero"` // the publisher's own digest, when that is another
	Version   string          `json:"version,omitempty"`  // as it was called
	Class     string          `json:"class"`              // manual, or how it failed
	Reason    string          `json:"reason,omitempty"`
}

// ClearOptions are the arguments of [Clear].
type ClearOptions struct {
	Target string          // as in [Config]; ignored by [Updater.Clear]
	Digest checksum.Digest // the one to allow again, ours or the publisher's
	All    bool            // every one
	Log    *slog.Logger    // ignored by [Updater.Clear]
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
		r.Rejected = slices.DeleteFunc(r.Rejected, func(j rejection) bool {
			hit := opts.All || j.is(opts.Digest)
			if hit {
				cleared = append(cleared, j.public())
			}
			return hit
		})
		if len(cleared) > 0 {
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
	return Rejection{SHA256: j.SHA256, Published: j.Published, Version: j.Version, Class: j.Class, Reason: j.Reason}
}
