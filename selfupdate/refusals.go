package selfupdate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/metal-stack/selfreconcile/checksum"
)

const (
	maxRefusals  = 8
	firstBackoff = time.Minute
	maxBackoff   = time.Hour
)

// refusal is a download that was not what it should have been. It is not fetched
// again at every round of a loop, also not after a restart; another checksum file
// or URL makes it another download.
type refusal struct {
	Want   checksum.Digest `json:"want"`
	URL    string          `json:"url"`
	Inside string          `json:"inside,omitempty"` // as in entry
	Count  int             `json:"count"`
	BootID string          `json:"boot_id,omitempty"`
	Mono   int64           `json:"mono"` // of the last one, in ns
	Reason string          `json:"reason,omitempty"`

	extra map[string]json.RawMessage
}

func (f *refusal) UnmarshalJSON(b []byte) (err error) {
	type plain refusal
	f.extra, err = decodeKeeping(b, (*plain)(f))
	return err
}

func (f refusal) MarshalJSON() ([]byte, error) {
	type plain refusal
	return encodeKeeping(plain(f), f.extra)
}

// HeldBack is a download that was refused and is not tried again for a while.
type HeldBack struct {
	Want   checksum.Digest `json:"want"` // the digest that it should have had
	URL    string          `json:"url,omitempty"`
	Count  int             `json:"count"`          // how often it was refused
	Left   time.Duration   `json:"left,omitempty"` // until the next try, in ns
	Reason string          `json:"reason,omitempty"`
}

func (f refusal) public(sys ops) HeldBack {
	h := HeldBack{Want: f.Want, URL: f.URL, Count: f.Count, Reason: f.Reason}
	if f.BootID != "" && f.BootID == sys.boot() {
		h.Left = max(0, f.backoff()-(sys.mono()-time.Duration(f.Mono)))
	}
	return h
}

// backoff returns how long after the last time nothing is tried: the second try is free.
func (f refusal) backoff() time.Duration {
	if f.Count < 2 {
		return 0
	}
	return min(maxBackoff, firstBackoff<<min(f.Count-2, 10))
}

func (r *record) refusal(d decision) *refusal {
	url := clip(d.asset.URL, maxURL)
	for i := range r.Refusals {
		if f := &r.Refusals[i]; f.Want.Equal(d.want) && f.URL == url && f.Inside == d.inside {
			return f
		}
	}
	return nil
}

// heldBack returns an error while the download is not to be tried again. After a
// reboot nobody knows how long ago the last time was: then it is tried.
func (u *Updater) heldBack(r record, d decision) error {
	f := r.refusal(d)
	sys := u.target.sys
	if f == nil || d.have != nil || u.cfg.Refresh || f.BootID == "" || f.BootID != sys.boot() {
		return nil
	}
	left := f.backoff() - (sys.mono() - time.Duration(f.Mono))
	if left <= 0 {
		return nil
	}
	return failed("download", d.asset.URL, fmt.Errorf("%w: %d times, next try in %v: %s", ErrHeldBack, f.Count, left.Round(time.Second), f.Reason))
}

// refused remembers that what was downloaded for d was refused. A probe's verdict
// is of the program itself, so that is rejected. It returns err.
func (u *Updater) refused(ctx context.Context, rel Release, seen record, d decision, s staged, err error) error {
	if ClassOf(err) != Refused || ctx.Err() != nil {
		return err
	}
	t := u.target
	var e *Error
	reason := err.Error()
	if errors.As(err, &e) {
		reason = e.Step + ": " + e.Err.Error()
	}
	reason = clip(cmpText(reason, ""), maxReason)
	werr := t.update(ctx, func(r *record) error {
		if r.Phase == "" {
			extra := r.extra
			*r = seen
			r.extra = extra
		}
		if r.Phase != phaseStable {
			return nil
		}
		if isErr(err, ErrProbe) && !isErr(err, errEnded) {
			j := rejection{SHA256: s.sha256, Published: s.published, Inside: d.inside, Version: rel.Version, Class: classExec, Verdict: verdictGuilty, Reason: reason}
			if isErr(err, context.DeadlineExceeded) {
				j.Class = classHang
			}
			r.reject(j)
			return nil
		}
		f := refusal{Want: d.want, URL: clip(d.asset.URL, maxURL), Inside: d.inside}
		if old := r.refusal(d); old != nil {
			f = *old
		}
		r.Refusals = slices.DeleteFunc(r.Refusals, func(o refusal) bool { return o.Want.Equal(f.Want) && o.URL == f.URL && o.Inside == f.Inside })
		f.Count++
		f.BootID, f.Mono, f.Reason = t.sys.boot(), int64(t.sys.mono()), clip(reason, 128)
		r.Refusals = append(r.Refusals, f)
		if n := len(r.Refusals) - maxRefusals; n > 0 {
			r.Refusals = slices.Delete(r.Refusals, 0, n)
		}
		return nil
	})
	if werr != nil {
		t.log.Warn("a refusal could not be remembered", "error", werr)
	}
	return err
}
