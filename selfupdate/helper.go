package selfupdate

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/metal-stack/selfreconcile/checksum"
)

// Helper does from outside what a program on trial can't do for itself: bring
// back the program before one that can't be executed, or crashes or hangs before
// it gets to Begin. cmd/selfupdate-guard is a command line for it.
type Helper struct{ target *target }

// NewHelper returns the helper for the program at path.
func NewHelper(path string, log *slog.Logger) (*Helper, error) {
	if path == "" {
		return nil, errors.New("a helper needs the path of another program")
	}
	t, err := openTarget(path, log, system())
	if err != nil {
		return nil, err
	}
	return &Helper{target: t}, nil
}

// Pre belongs before every start of the program. It counts the start of one that
// is on trial, goes back after too many or after the deadline, finishes a switch
// that a power cut undid, and makes durable what is about to run. It waits at most
// 10 s for a lock. Whatever the error, the program should be started: the Start
// beside it says what runs.
func (h *Helper) Pre(ctx context.Context) (Start, error) {
	h.target.seen(helperMark)
	s, _, err := h.target.begin(ctx, nil)
	return s, err
}

// Post belongs after every end of the program: it says how that start ended. An
// orderly end does not count, at most as often as the trial has starts. Without a
// trial it is nil. An error, such as [ErrBusy] after 10 s or [ErrNoSpace], says that
// nothing was recorded, and that start counts.
func (h *Helper) Post(ctx context.Context, e Ending) error {
	if h.target.quiet() {
		return nil
	}
	return h.target.ended(ctx, "", e)
}

// Check is what [Helper.Tick] found.
type Check struct {
	// Restart says that the program must be restarted: what runs is not what should.
	// Say [Helper.Restarted] once that is done; until then each Tick says so again.
	Restart bool          `json:"restart"`
	OnTrial bool          `json:"on_trial"`
	Left    time.Duration `json:"left,omitempty"` // until the deadline, in ns
	Reason  string        `json:"reason,omitempty"`
}

// Tick belongs into a timer, every 30 s or so. It ends a trial whose deadline is
// over: the program before is put back, and has to be restarted. After an error the
// next Tick tries again: [ErrBusy] after 10 s, [ErrNoSpace], [ErrPermission],
// [ErrDamaged] when there is nothing whole to go back to. The Check beside it holds.
func (h *Helper) Tick(ctx context.Context) (c Check, err error) {
	t := h.target
	t.seen(timerMark)
	if t.quiet() {
		return Check{}, nil
	}
	release, err := t.acquireState(ctx)
	if err != nil {
		return Check{}, err
	}
	defer release()
	defer func() {
		if c.Restart {
			t.asked.Store(t.stamp())
		}
	}()
	r, err := t.read()
	switch {
	case errors.Is(err, errDamaged):
		return Check{}, nil // the next start or update makes a new one
	case err != nil:
		return Check{}, err
	case r.Phase == phaseTrial && r.Trial.Max > 0:
		return t.tick(r)
	case r.PendingRestart:
		return Check{Restart: true, Reason: "the program at the target was not restarted yet"}, nil
	}
	return Check{}, nil
}

func (t *target) tick(r record) (Check, error) {
	tr, boot, now := *r.Trial, t.sys.boot(), t.sys.mono()
	there, err := t.identify(r)
	if err != nil {
		return Check{}, err
	}
	if d := there.SHA256; !d.IsZero() && !tr.candidateIs(d) && !d.Equal(tr.Fallback) {
		return Check{Reason: "another file was put at the target"}, t.change(t.stay)
	}
	left := time.Duration(tr.Deadline) - (now - time.Duration(tr.MonoStart))
	watched, here := t.lastSeen(helperMark) == boot, tr.candidateIs(there.SHA256)
	switch {
	case tr.Expired:
	case boot == "": // no clock that two processes share
		return Check{OnTrial: true, Left: time.Duration(tr.Deadline)}, nil
	case tr.BootID != boot: // not started since the machine was: its time runs from now
		return Check{OnTrial: true, Left: time.Duration(tr.Deadline)}, t.change(func(r *record) error {
			r.Trial.close(boot)
			r.Trial.Running = here && !watched // for all that is known
			r.Trial.BootID, r.Trial.MonoStart = boot, int64(now)
			return nil
		})
	case !tr.Running && (watched || tr.begun()):
		return Check{OnTrial: true, Reason: "the program on trial is not running"}, nil
	case left > 0:
		return Check{OnTrial: true, Left: left}, nil
	case !here && (!tr.Running || !there.SHA256.IsZero()): // a full disk kept it from its start, or a power cut undid the switch: no word against it
		s, err := t.abandon(r, "the program before is running")
		return Check{Reason: s.Reason}, err
	}
	return t.endByTick(r, here || r.PendingRestart || there.SHA256.IsZero() && tr.Running)
}

// begun reports whether anything is known of a start of the candidate.
func (tr *trial) begun() bool { return tr.Started > 0 || tr.Refunds > 0 || len(tr.Failures) > 0 }

// endByTick goes back. The program that runs has to make way.
func (t *target) endByTick(r record, candidate bool) (Check, error) {
	mark := t.change(func(r *record) error {
		if !r.Trial.Expired {
			r.Trial.expire()
		}
		r.PendingRestart = candidate
		return nil
	})
	if now, err := t.read(); err == nil && now.Phase == phaseTrial {
		r = now
	}
	if !r.Trial.Expired { // a full disk: going back makes room, and then it is recorded
		r.Trial.expire()
	}
	c := Check{Restart: candidate, Reason: r.Trial.Reason}
	err := t.leave(r)
	if mark != nil && err == nil {
		mark = t.change(func(r *record) error {
			r.PendingRestart = candidate
			return nil
		})
	}
	return c, join(mark, err)
}

// Restarted records that the restart that [Helper.Tick] asked for was done. After an
// error ([ErrBusy], [ErrNoSpace], [ErrPermission]) the next Tick asks for it again, and
// also when the target was changed while the program restarted.
func (h *Helper) Restarted(ctx context.Context) error {
	return h.target.restarted(ctx, h.target.asked.Load())
}

// restarted records a restart of the program that the file at the target was; nil: of any.
func (t *target) restarted(ctx context.Context, was *stamp) error {
	release, err := t.acquireState(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	defer release()
	return t.changeInRoom(func(r *record) error {
		if now := t.stamp(); was == nil || now == nil || *now == *was {
			r.PendingRestart = false
		}
		return nil
	})
}

// ConfirmOptions are the arguments of [Helper.Confirm].
type ConfirmOptions struct {
	// From, when set, is the only program to confirm, by its SHA-256 or the publisher's
	// digest; another one on trial, or none, is [ErrChanged].
	From checksum.Digest

	// Force confirms also a program that is not running, or has not got to Begin in
	// this start: else [ErrNotRunning].
	Force bool
}

// Confirm confirms the program that is on trial, as an operator or another program
// does who has seen that it works. Without a trial it only says that the current
// program is well. Its errors are those of [ConfirmOptions] and of [Updater.Confirm],
// and [ErrNoTarget] when no file is there: after each of them it is not confirmed.
func (h *Helper) Confirm(ctx context.Context, opts ConfirmOptions) error {
	t := h.target
	if t.quiet() && opts.From.IsZero() {
		return t.settled()
	}
	changed, err := t.confirm(ctx, "", func() bool { return true }, &opts)
	if changed && err == nil {
		t.tidy()
	}
	return err
}

// Names of the files that tell [Updater.Status] which helpers are at work. Each
// holds the boot in which it was last seen.
const (
	helperMark = "helper"
	timerMark  = "timer"
)

// seen leaves word of a helper, once a boot; nothing depends on it.
func (t *target) seen(mark string) {
	boot := t.sys.boot()
	if boot == "" || t.lastSeen(mark) == boot {
		return
	}
	if _, err := t.sys.lstat(t.target); err != nil || !t.mayMark() || t.makeState() != nil {
		return
	}
	tmp := t.temp()
	f, err := t.sys.create(tmp)
	if err != nil {
		return
	}
	f.inherit()
	_, err = f.Write([]byte(boot))
	err = join(err, f.Close())
	if err == nil {
		err = t.sys.rename(tmp, t.mark(mark))
	}
	if err != nil {
		_ = t.sys.remove(tmp)
	}
}

// mayMark reports whether the state directory is there or ours to make: one that
// root makes for a program of another user would keep that from its first update.
func (t *target) mayMark() bool {
	if _, err := t.sys.lstat(t.state); err == nil {
		return true
	}
	fi, err := t.sys.lstat(t.dir)
	if err != nil {
		return false
	}
	uid, _ := owner(fi)
	return uid < 0 || uid == euid()
}

func (t *target) mark(name string) string { return t.state + string(separator) + name }

func (t *target) lastSeen(mark string) string {
	f, err := t.sys.open(t.mark(mark))
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	b, err := readLimited(f, 128)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// isService reports whether something watches the starts of the program.
func (t *target) isService() bool {
	boot := t.sys.boot()
	return boot != "" && (t.lastSeen(helperMark) == boot || t.lastSeen(timerMark) == boot)
}

// protection says which helpers were seen since the machine was started.
func (t *target) protection() string {
	boot := t.sys.boot()
	switch {
	case boot == "" || t.lastSeen(helperMark) != boot:
		return "no-helper"
	case t.lastSeen(timerMark) != boot:
		return "no-timer"
	}
	return "full"
}
