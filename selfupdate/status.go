package selfupdate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/metal-stack/selfreconcile/internal/shell"
)

// Program is one that is or was at the target.
type Program struct {
	SHA256    checksum.Digest `json:"sha256"`
	Published checksum.Digest `json:"published,omitzero"` // the publisher's own digest, when that is another
	Version   string          `json:"version,omitempty"`  // as it was asked for; "" when unknown
	URL       string          `json:"url,omitempty"`
	Policy    string          `json:"policy,omitempty"` // the trust that let it in
	Size      int64           `json:"size"`             // in bytes
	Confirmed bool            `json:"confirmed"`
}

// Status is what is known of a target. It is derived from the record and the
// file, and never read back by anything.
type Status struct {
	Target   string      `json:"target"`
	Phase    string      `json:"phase"` // stable | trial | empty (nothing is installed)
	Current  *Program    `json:"current,omitempty"`
	Previous []Program   `json:"previous,omitempty"` // what Rollback can go back to, newest first
	Rejected []Rejection `json:"rejected,omitempty"`
	HeldBack []HeldBack  `json:"held_back,omitempty"` // downloads that were refused
	Last     *Event      `json:"last,omitempty"`

	// Trial is the one that goes on; Current is then the program to go back to.
	Trial *TrialStatus `json:"trial,omitempty"`

	// Spare is a program that was on trial and is kept to be tried again.
	Spare *Program `json:"spare,omitempty"`

	// PendingRestart says that the target was changed and its program not restarted.
	PendingRestart bool `json:"pending_restart,omitempty"`

	// Missing says that no file is at the target, although one is recorded.
	Missing bool `json:"missing,omitempty"`

	// Damaged says that the record can't be read. What is said here was found on the
	// disk; rejections and versions are lost. The next update writes a new record.
	Damaged bool `json:"damaged,omitempty"`

	// Changed says that the file at the target is not the recorded one: somebody
	// replaced it by hand. The next update adopts it.
	Changed bool `json:"changed,omitempty"`

	// Unfinished says that an update or a way back was interrupted; the next
	// update or rollback ends it. The target is whole all the same.
	Unfinished bool `json:"unfinished,omitempty"`

	// Protection says what brings back the predecessor of a program that fails on
	// trial, by what was seen since the machine was started. "full": Helper.Pre and
	// Helper.Tick. "no-timer": no Tick, so a program that hangs stays unless it calls
	// Guard or has a watchdog. "no-helper": only the program itself, which has to get
	// as far as Begin.
	Protection string `json:"protection"`

	// RestartNeeded says that this process is the target's program, but not the
	// file that is there now.
	RestartNeeded bool `json:"restart_needed"`
}

// TrialStatus is a trial that goes on.
type TrialStatus struct {
	Candidate Program       `json:"candidate"`
	Started   int           `json:"started"`            // starts that count
	Max       int           `json:"max"`                // of them
	Deadline  time.Duration `json:"deadline"`           // from each start, in ns
	Left      time.Duration `json:"left,omitempty"`     // of it, in ns; 0 when not started since the machine was
	Expired   bool          `json:"expired,omitempty"`  // the next start goes back
	Failures  []string      `json:"failures,omitempty"` // how earlier starts ended
	Reason    string        `json:"reason,omitempty"`   // why it expired
	AtTarget  bool          `json:"at_target"`          // the candidate is what is at the target
}

// Event is the last thing that happened to a target.
type Event struct {
	Outcome string    `json:"outcome"` // updated | on trial | confirmed | rolled back | trial ended | adopted | cleared
	Reason  string    `json:"reason,omitempty"`
	At      time.Time `json:"at"` // wall clock, for people
}

// ReadStatus returns the status of the program at path ("": the own executable),
// reading only. Where the record does not say what the file is, it is hashed.
func ReadStatus(path string, log *slog.Logger) (Status, error) {
	u, err := bare(path, log)
	if err != nil {
		return Status{}, err
	}
	return u.Status()
}

// Status is [ReadStatus] for the Updater's target.
func (u *Updater) Status() (Status, error) {
	t := u.target
	raw, r, damaged, err := t.look()
	if err != nil {
		return Status{}, err
	}
	st := Status{Target: t.target, Phase: string(phaseStable), Protection: t.protection(), PendingRestart: raw.PendingRestart, Damaged: damaged, RestartNeeded: u.stale()}
	switch {
	case raw.Trial != nil && raw.Trial.Max > 0:
		st.Phase, st.Trial = string(phaseTrial), t.trialStatus(*raw.Trial)
	case r.Current == nil:
		st.Phase = "empty"
	}
	if _, err := t.sys.lstat(t.target); errors.Is(err, fs.ErrNotExist) {
		st.Missing = r.Current != nil
	}
	st.Unfinished = raw.Trial != nil && raw.Trial.Max == 0
	st.Changed = raw.Phase == phaseStable && raw.Current != nil && (r.Current == nil || !r.Current.SHA256.Equal(raw.Current.SHA256))
	if r.Current != nil {
		st.Current = r.Current.public()
	}
	if r.Spare != nil {
		st.Spare = r.Spare.public()
	}
	for _, e := range r.Good {
		st.Previous = append(st.Previous, *e.public())
	}
	for _, j := range r.Rejected {
		st.Rejected = append(st.Rejected, j.public())
	}
	for _, f := range r.Refusals {
		st.HeldBack = append(st.HeldBack, f.public(t.sys))
	}
	if l := raw.Last; l != nil {
		st.Last = &Event{Outcome: l.Outcome, Reason: l.Reason, At: l.At}
	}
	return st, nil
}

func (t *target) trialStatus(tr trial) *TrialStatus {
	ts := &TrialStatus{
		Candidate: *tr.Candidate.public(), Started: tr.Started, Max: tr.Max, Deadline: time.Duration(tr.Deadline),
		Expired: tr.Expired, Failures: tr.Failures, Reason: tr.Reason, AtTarget: t.holds(&tr.Candidate),
	}
	if b := t.sys.boot(); b != "" && b == tr.BootID && tr.Running {
		ts.Left = max(0, ts.Deadline-(t.sys.mono()-time.Duration(tr.MonoStart)))
	}
	if !ts.AtTarget {
		got, err := t.hash(t.target, checksum.SHA256)
		ts.AtTarget = err == nil && tr.candidateIs(got)
	}
	return ts
}

func (e entry) public() *Program {
	return &Program{SHA256: e.SHA256, Published: e.Published, Version: e.Version, URL: e.URL, Policy: e.Policy, Size: e.Size, Confirmed: e.Confirmed}
}

// look reads the record and the file at one instant: of an update that is under
// way, it sees the time before or the one after.
func (t *target) look() (raw, r record, damaged bool, err error) {
	for range 10 {
		raw, err = t.read()
		if damaged = errors.Is(err, errDamaged); err != nil && !damaged {
			return raw, r, damaged, err
		}
		if r, err = t.view(); err != nil {
			return raw, r, damaged, err
		}
		again, err := t.read()
		if errors.Is(err, errDamaged) == damaged && reflect.DeepEqual(raw, again) {
			break
		}
	}
	return raw, r, damaged, nil
}

// view is what settle would make of the record, without a lock or a write.
func (t *target) view() (record, error) {
	r, err := t.read()
	if errors.Is(err, errDamaged) {
		r, err = record{damaged: true}, nil
	}
	if err != nil {
		return record{}, err
	}
	if r.Phase == phaseTrial && r.Trial.Max == 0 {
		err = t.finished(&r)
	} else if r.Phase != phaseTrial && !t.holds(r.Current) {
		err = t.adopt(&r)
	}
	return r, err
}

// Reconcile is what a caller's loop adds to the status file.
type Reconcile struct {
	At    time.Time         // when the loop last ran
	Next  string            // the desired version when it is not the current one
	Err   error             // why it is not
	Extra map[string]string // further lines, by key
}

// WriteStatus writes the status as YAML for people, replacing the file at path as
// a whole, mode 0644. Programs should not read it: use [Updater.Status].
func (u *Updater) WriteStatus(path string, rc Reconcile) error {
	st, err := u.Status()
	if err != nil {
		return err
	}
	sys := u.target.sys
	tmp := filepath.Join(filepath.Dir(path), tempName("."+filepath.Base(path)+"-"))
	f, err := sys.create(tmp)
	if err != nil {
		return failed("write status", path, err)
	}
	_, err = f.Write(st.yaml(rc))
	if err == nil {
		err = f.Chmod(0o644)
	}
	err = join(err, f.Close())
	if err == nil {
		err = sys.rename(tmp, path)
	}
	if err != nil {
		return failed("write status", path, join(err, sys.remove(tmp)))
	}
	return nil
}

func (st Status) yaml(rc Reconcile) []byte {
	var b strings.Builder
	line := func(indent, key, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s%s: %s\n", indent, key, quote(value))
		}
	}
	b.WriteString("# Written for people after each reconcile; nothing reads it back.\n")
	line("", "target", st.Target)
	line("", "phase", st.Phase)
	if st.Missing {
		line("", "missing", "no file is at the target; its next start, or selfupdate-guard pre, puts it back; selfupdate rollback the one before")
	}
	actual, last := st.Current, (*Program)(nil)
	if len(st.Previous) > 0 {
		last = &st.Previous[0]
	}
	if st.Trial != nil && st.Trial.AtTarget {
		actual, last = &st.Trial.Candidate, st.Current
	}
	if actual != nil {
		line("", "actualversion", actual.Version)
		line("", "actualsha256", actual.SHA256.Hex())
	}
	if last != nil {
		line("", "lastversion", last.Version)
		line("", "lastsha256", last.SHA256.Hex())
	}
	line("", "nextversion", rc.Next)
	if tr := st.Trial; tr != nil {
		b.WriteString("trial:\n")
		line("  ", "version", tr.Candidate.Version)
		line("  ", "sha256", tr.Candidate.SHA256.Hex())
		line("  ", "starts", fmt.Sprintf("%d of %d", tr.Started, tr.Max))
		line("  ", "deadline", tr.Deadline.String())
		line("  ", "failures", strings.Join(tr.Failures, "; "))
		line("  ", "expired", tr.Reason)
		line("  ", "rollback", "selfupdate-guard rollback --target "+shell.Word(st.Target)+" --from "+tr.Candidate.SHA256.String())
	}
	if !rc.At.IsZero() {
		line("", "lastreconcile", rc.At.UTC().Format(time.RFC3339))
	}
	if rc.Err != nil {
		line("", "error", rc.Err.Error())
	}
	if st.Last != nil {
		line("", "lastoutcome", strings.TrimSuffix(st.Last.Outcome+": "+st.Last.Reason, ": "))
	}
	line("", "protection", st.Protection)
	if len(st.Rejected) > 0 {
		b.WriteString("rejected:\n")
	}
	for _, j := range st.Rejected {
		line("- ", "sha256", j.SHA256.Hex())
		line("  ", "version", j.Version)
		line("  ", "class", j.Class)
		line("  ", "verdict", j.Verdict)
		line("  ", "reason", j.Reason)
		line("  ", "clear", "selfupdate-guard clear --target "+shell.Word(st.Target)+" "+j.SHA256.String())
	}
	for _, k := range slices.Sorted(maps.Keys(rc.Extra)) {
		line("", quoteKey(k), rc.Extra[k])
	}
	return []byte(b.String())
}

// quote writes a string as JSON, which is YAML too, whatever it holds.
func quote(s string) string {
	b, _ := json.Marshal(strings.ToValidUTF8(s, "?")) // a valid string always encodes
	return string(b)
}

func quoteKey(k string) string {
	if k != "" && strings.Trim(k, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_") == "" {
		return k
	}
	return quote(k)
}
