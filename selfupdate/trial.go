package selfupdate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"sync"
	"time"

	"github.com/metal-stack/selfreconcile/checksum"
)

// Defaults of a [Trial].
const (
	DefaultStarts   = 3
	DefaultDeadline = 10 * time.Minute
)

// Trial says how long a new version may take to prove itself. Until its
// [Updater.Confirm] it is on trial: after Starts starts, or when Deadline is over,
// the program before comes back. What the update that begins the trial says holds
// for all of it. Not on Windows.
type Trial struct {
	// Starts is how often the new version may be started without confirming, starts
	// that end orderly aside; 0 is DefaultStarts, at most 16.
	Starts int

	// Deadline is for Confirm, from each start, by the monotonic clock, which stands
	// still while the machine sleeps; 0 is DefaultDeadline. Choose it longer than the
	// longest outage that should not end a trial.
	Deadline time.Duration

	// Outside says that the new version is confirmed from outside, by [Helper.Confirm]
	// or by the Updater of another program, and so need not contain this module.
	Outside bool
}

func (tr *Trial) check() error {
	switch {
	case tr == nil:
		return nil
	case tr.Starts < 0 || tr.Starts > maxStarts:
		return fmt.Errorf("a trial has 1 to %d starts", maxStarts)
	case tr.Deadline < 0:
		return errors.New("a negative Deadline")
	case runtime.GOOS == "windows":
		return fmt.Errorf("a trial on Windows: %w", errors.ErrUnsupported)
	}
	return nil
}

// begun returns what the record says of a trial that is about to begin; one
// needs a program to go back to.
func (tr *Trial) begun(r record) trial {
	if tr == nil || r.Current == nil || r.missing {
		return trial{}
	}
	t := trial{Max: tr.Starts, Deadline: int64(tr.Deadline), Outside: tr.Outside}
	if t.Max == 0 {
		t.Max = DefaultStarts
	}
	if t.Deadline == 0 {
		t.Deadline = int64(DefaultDeadline)
	}
	return t
}

// Start is what [Updater.Begin] or [Helper.Pre] found and did: this call itself.
// When the helper has gone back before this process started, its Begin has nothing
// to say: [Status.Last] and [Status.Rejected] do.
type Start struct {
	// Restart says that this process is not the target's program (any more): end, or
	// exec the target, so that that one runs. Only from Begin.
	Restart bool `json:"restart"`

	OnTrial    bool          `json:"on_trial"`              // what starts is on trial: Guard it, Confirm it
	RolledBack bool          `json:"rolled_back,omitempty"` // the program before was put back
	Version    string        `json:"version,omitempty"`     // of what starts, as it was asked for; may be "" without a trial
	Left       int           `json:"left"`                  // starts left after this one
	Deadline   time.Duration `json:"deadline,omitempty"`    // for Confirm, from now; in ns
	Reason     string        `json:"reason,omitempty"`      // for people: why something was done
}

// session is what a process knows of its own trial.
type session struct {
	mu        sync.Mutex
	start     Start
	id        string // of the trial of this process; "" when it is on none
	durable   bool   // the quiet record that was seen is
	until     time.Duration
	confirmed chan struct{} // closed by Confirm
}

// Begin belongs right after the flags that only print something (-v, --help) and
// before anything that can fail. It counts this start of a program on trial, and
// after too many goes back to the one before: [Start.Restart] then says to leave.
// Where [Helper.Pre] runs before every start, that counted and Begin only says so.
//
// It waits at most 10 s for a lock. An error is no reason not to go on: the Start
// beside it is right. Begin does nothing when this process is not the file at
// the target (a probe, a copy). Without a trial it reads one small file. Without
// [Config.Trial] it is an error, which has no sentinel and no [Class].
func (u *Updater) Begin(ctx context.Context) (Start, error) {
	if u.cfg.Trial == nil {
		return Start{}, errors.New("Begin needs Config.Trial")
	}
	u.session.mu.Lock()
	defer u.session.mu.Unlock()
	if u.session.confirmed != nil { // again: this start was counted
		return u.session.start, nil
	}
	t := u.target
	if !u.isTarget() {
		return Start{}, nil
	}
	unsynced := t.sys.syncDir(t.state) // what is read must be durable before it is acted on
	if errors.Is(unsynced, fs.ErrNotExist) {
		return Start{}, nil
	}
	if t.quiet() {
		u.session.durable = unsynced == nil
		return Start{}, failed("make the start durable", t.dir, t.sys.syncDir(t.dir))
	}
	s, id, err := t.begin(ctx, u.running)
	s.Restart = u.stale()
	if s.OnTrial && !s.Restart {
		u.session.start, u.session.id = s, id
		u.session.until = t.sys.mono() + s.Deadline
		u.session.confirmed = make(chan struct{})
	}
	return s, err
}

// isTarget reports whether this process runs the file that is at the target now.
func (u *Updater) isTarget() bool { return u.own && u.running != nil && !u.stale() }

// Guard blocks until the trial of this process is over: nil when it is confirmed,
// and at once when there is none or [Updater.Begin] was not called before;
// [ErrExpired] at the deadline: leave, so that the program before can come back;
// ctx.Err() when ctx ends first. It never ends the process itself.
//
// The end is recorded; where it can't be (a full disk) that is logged, and ErrExpired
// all the same: the next start can't be counted, and goes back too.
func (u *Updater) Guard(ctx context.Context) error {
	u.session.mu.Lock()
	id, until, confirmed := u.session.id, u.session.until, u.session.confirmed
	u.session.mu.Unlock()
	if id == "" {
		return nil
	}
	t := u.target
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() { // ends with this call at the latest
		select {
		case <-confirmed:
			cancel()
		case <-stop:
		}
	}()
	for left := until - t.sys.mono(); left > 0; left = until - t.sys.mono() {
		if t.sys.sleep(wait, left) != nil {
			break
		}
	}
	select {
	case <-confirmed:
		return nil
	default:
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	over, err := t.expire(ctx, id)
	if err != nil { // a full disk: the next start can't be counted, and that goes back too
		t.log.Warn("the end of the trial could not be recorded", "error", err)
	}
	if !over && err == nil && !u.stale() {
		return nil // confirmed from outside
	}
	return ErrExpired
}

// Confirm says that this program works. Call it at the end of every good round of
// work: without a trial it reads one small file and writes nothing. After nil
// nothing goes back by itself. In a process that is not the file at the target (a
// copy, or one whose file was replaced since) and on no trial it is nil and does nothing.
//
// [ErrExpired] says that it came too late. After any other error it is not confirmed:
// call it again. [ErrBusy], after 10 s, says that another process holds the record;
// [ErrNoSpace] and [ErrPermission] that it can't be written; [ErrNotRunning] is for
// the Updater of another program, as in [ConfirmOptions]. Without [Config.Trial]
// it is an error, which has no sentinel and no [Class].
//
// It also tells the record that the environment is well, which decides what to
// think of a version that failed before: see docs/design.md.
func (u *Updater) Confirm(ctx context.Context) error {
	if u.cfg.Trial == nil {
		return errors.New("Confirm needs Config.Trial")
	}
	u.session.mu.Lock()
	defer u.session.mu.Unlock()
	t := u.target
	if t.quiet() && (u.session.id == "" || !u.stale()) {
		if !u.session.durable { // once: who wrote it may have been killed before it was
			if err := t.settled(); err != nil {
				return err
			}
			u.session.durable = true
		}
		u.session.over()
		return nil
	}
	u.session.durable = false
	if !u.outside() && !u.isTarget() {
		if u.session.id != "" {
			return failed("confirm", t.target, ErrExpired)
		}
		return nil // a copy, or a program that was replaced: not its turn
	}
	changed, err := t.confirm(ctx, u.session.id, func() bool { return u.outside() || u.isTarget() }, u.asOutside())
	if err != nil {
		return err
	}
	u.session.over()
	if changed {
		t.tidy()
	}
	return nil
}

// asOutside is nil for a program that confirms itself.
func (u *Updater) asOutside() *ConfirmOptions {
	if u.outside() {
		return &ConfirmOptions{}
	}
	return nil
}

// over ends Guard.
func (s *session) over() {
	if s.id != "" {
		s.id = ""
		close(s.confirmed)
	}
}

// Stopped says that this process ends because it was told to, so that the start
// does not count against it: for programs without [Helper.Post]. At most Starts
// of them are taken back in one trial. Outside of a trial it is nil and does nothing.
// An error says that the start still counts.
func (u *Updater) Stopped(ctx context.Context) error {
	u.session.mu.Lock()
	id := u.session.id
	u.session.mu.Unlock()
	if id == "" {
		return nil
	}
	return u.target.ended(ctx, id, Ending{Orderly: true})
}

// tidy removes what no record names, unless an update is under way.
func (t *target) tidy() {
	release, err := t.acquire()
	if err != nil {
		return
	}
	defer release()
	r, err := t.read()
	if err == nil && r.Phase == phaseStable {
		err = t.sweep(r)
	}
	if err != nil {
		t.log.Warn("cleaning up has to wait for the next run", "error", err)
	}
}

// name is what to call a program in a text for people.
func (e entry) name() string {
	if e.Version == "" {
		return e.SHA256.String()
	}
	return "version " + e.Version
}

// candidateIs reports whether d is the candidate of the trial.
func (tr *trial) candidateIs(d checksum.Digest) bool { return tr.Candidate.SHA256.Equal(d) }
