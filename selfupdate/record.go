package selfupdate

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/metal-stack/selfreconcile/checksum"
)

// The record is <state>/state.json, one line of JSON:
//
//	{"format":1,"sha256":"<64 hex>","record":{…}}
//
// The sum is over the bytes of the record as they stand in the file, so that a
// reader can trust "phase" and "current", which come first, without decoding
// JSON. It is replaced as a whole by a rename. Keys that this version does not
// know are kept: the old program, the candidate and the helper may each link
// another version of this module.
const (
	recordFormat = 1
	maxRecord    = 16 << 10 // bytes
	maxGood      = 2        // earlier programs kept on disk, besides the current one
	maxRejected  = 16
	maxStarts    = 16
	maxRetries   = 3   // of a program whose failure was inconclusive
	maxCounted   = 2   // failures that count against a program until it is guilty
	maxReason    = 256 // bytes
	maxVersion   = 128 // bytes of a version
	maxURL       = 512 // bytes of a URL as recorded
)

type phase string

const (
	phaseStable phase = "stable"
	phaseTrial  phase = "trial"
)

type record struct {
	Phase          phase       `json:"phase"`
	Current        *entry      `json:"current,omitempty"` // nil when nothing is installed
	Good           []entry     `json:"good,omitempty"`    // earlier confirmed programs, newest first
	Trial          *trial      `json:"trial,omitempty"`
	Spare          *entry      `json:"spare,omitempty"`    // was on trial and may be tried again: its slot stays
	Rejected       []rejection `json:"rejected,omitempty"` // oldest first
	Refusals       []refusal   `json:"refusals,omitempty"` // oldest first
	PendingRestart bool        `json:"pending_restart,omitempty"`
	RetryToken     string      `json:"retry_token,omitempty"`
	Last           *event      `json:"last,omitempty"`

	extra   map[string]json.RawMessage
	damaged bool // made in memory, because the one on disk can't be read
	missing bool // nothing is at the target
}

// entry is a program that is or was at the target; its file is slots/<sha256>.
type entry struct {
	SHA256    checksum.Digest `json:"sha256"`
	Published checksum.Digest `json:"published,omitzero"` // what the publisher listed, when that is another digest
	Inside    string          `json:"inside,omitempty"`   // which file of that archive, when it is not named as the target
	Version   string          `json:"version,omitempty"`
	URL       string          `json:"url,omitempty"`
	Policy    string          `json:"policy,omitempty"` // the trust that held
	Size      int64           `json:"size"`
	Confirmed bool            `json:"confirmed"`
	Stat      *stamp          `json:"stat,omitempty"`

	extra map[string]json.RawMessage
}

// is reports whether d is the digest of this program, ours or the publisher's.
func (e entry) is(d checksum.Digest) bool { return e.SHA256.Equal(d) || e.Published.Equal(d) }

// stamp tells without reading it whether a file is still the one recorded.
type stamp struct {
	Size  int64  `json:"size"`
	Mtime int64  `json:"mtime"` // in ns since 1970
	Inode uint64 `json:"inode"`
}

// trial is a switch that is not finished: of an update, of a way back, or a real
// trial (Max > 0). Expired means: on the way back to the fallback.
type trial struct {
	ID        string          `json:"id"`
	Candidate entry           `json:"candidate"`
	Fallback  checksum.Digest `json:"fallback,omitzero"`  // names current or one of good
	Started   int             `json:"started"`            // starts that count, this one included
	Max       int             `json:"max"`                // 0: no trial, finished by whoever next takes the lock
	Deadline  int64           `json:"deadline,omitempty"` // from each start, in ns
	Outside   bool            `json:"outside,omitempty"`  // confirmed from outside: the candidate never calls Begin
	Running   bool            `json:"running,omitempty"`  // the last start counted, and nobody saw its end
	Pre       string          `json:"pre,omitempty"`      // the mark that pre leaves for Begin
	BootID    string          `json:"boot_id,omitempty"`
	MonoStart int64           `json:"mono_start,omitempty"` // CLOCK_MONOTONIC of the last start (or the switch) in ns
	Refunds   int             `json:"refunds,omitempty"`    // starts that ended orderly and so don't count
	Failures  []string        `json:"failures,omitempty"`   // how starts ended, "class: detail"
	Expired   bool            `json:"expired,omitempty"`
	Keep      bool            `json:"keep_allowed,omitempty"` // on the way back: do not reject
	Class     string          `json:"class,omitempty"`        // on the way back: why
	Reason    string          `json:"reason,omitempty"`

	extra map[string]json.RawMessage
}

// What a rejected program did, and what is thought of it.
const (
	classExec      = "exec"      // could not be executed
	classCrash     = "crash"     // ended before it got to Begin
	classHang      = "hang"      // did not get to Begin, or stopped answering its watchdog
	classUnhealthy = "unhealthy" // ran, and was not confirmed
	classManual    = "manual"    // somebody rolled it back

	verdictPending      = "pending" // until the fallback is confirmed, or isn't
	verdictGuilty       = "guilty"
	verdictInconclusive = "inconclusive" // the fallback was no better: may be tried again
	verdictManual       = "manual"
)

type rejection struct {
	SHA256    checksum.Digest `json:"sha256"`
	Published checksum.Digest `json:"published,omitzero"`
	Inside    string          `json:"inside,omitempty"`
	Version   string          `json:"version,omitempty"`
	Class     string          `json:"class"`
	Verdict   string          `json:"verdict"`
	Tries     int             `json:"tries,omitempty"`   // how often it was tried again
	Counted   int             `json:"counted,omitempty"` // failures that count against it
	Reason    string          `json:"reason,omitempty"`

	// While pending: when the way back was, and how long the fallback has.
	BootID   string `json:"boot_id,omitempty"`
	Mono     int64  `json:"mono,omitempty"`     // in ns
	Deadline int64  `json:"deadline,omitempty"` // in ns

	extra map[string]json.RawMessage
}

// bars reports whether the program must not be switched to.
func (j *rejection) bars() bool {
	return j != nil && (j.Verdict != verdictInconclusive || j.Tries >= maxRetries)
}

func (j rejection) is(d checksum.Digest) bool { return j.SHA256.Equal(d) || j.Published.Equal(d) }

// event is the last outcome, for people; no decision reads it.
type event struct {
	Outcome string    `json:"outcome"`
	Reason  string    `json:"reason,omitempty"`
	At      time.Time `json:"at"`
}

// rejection returns the entry that rejects d, or nil.
func (r *record) rejection(d checksum.Digest) *rejection {
	for i := range r.Rejected {
		if r.Rejected[i].is(d) {
			return &r.Rejected[i]
		}
	}
	return nil
}

// reject remembers j in the place of an older entry for the same program, which is
// no way back any more either, unless it may be tried again.
func (r *record) reject(j rejection) {
	r.noWayBack(j)
	if old := r.rejection(j.SHA256); old != nil { // it was before, and what that was stays known
		j.Tries, j.Counted, j.extra = old.Tries, old.Counted, old.extra
	}
	r.Rejected = slices.DeleteFunc(r.Rejected, func(o rejection) bool { return o.is(j.SHA256) })
	r.Rejected = append(r.Rejected, j)
	if n := len(r.Rejected) - maxRejected; n > 0 {
		r.Rejected = slices.Delete(r.Rejected, 0, n)
	}
}

func (r *record) noWayBack(j rejection) {
	if j.Verdict == verdictGuilty || j.Verdict == verdictManual {
		r.forget(j.SHA256)
	}
}

// forget makes a program no way back any more.
func (r *record) forget(d checksum.Digest) {
	r.Good = slices.DeleteFunc(slices.Clone(r.Good), func(e entry) bool { return e.SHA256.Equal(d) })
}

// lose forgets the program d, whose slot is gone.
func (r *record) lose(d checksum.Digest) {
	r.forget(d)
	if r.Spare != nil && r.Spare.SHA256.Equal(d) {
		r.Spare = nil
	}
}

// needs reports whether d is current, or part of the trial.
func (r *record) needs(d checksum.Digest) bool {
	return r.Current != nil && r.Current.SHA256.Equal(d) || r.Trial != nil && (r.Trial.candidateIs(d) || r.Trial.Fallback.Equal(d))
}

// succeed makes e current and the one before it the newest of the good ones.
func (r *record) succeed(e entry) {
	good := r.Good
	if r.Current != nil {
		good = append([]entry{*r.Current}, good...)
	}
	good = slices.DeleteFunc(good, func(o entry) bool { return o.is(e.SHA256) || !o.Confirmed })
	r.Good = good[:min(len(good), maxGood)]
	r.forgive(e)
	r.stable(e)
}

// forgive forgets an inconclusive failure of e, which is good after all, and the
// program that was kept to be tried again: another one was right.
func (r *record) forgive(e entry) {
	r.Rejected = slices.DeleteFunc(r.Rejected, func(j rejection) bool {
		return j.Verdict == verdictInconclusive && j.is(e.SHA256)
	})
	r.Spare = nil
}

// revert makes d current again: what is current while another one is on trial, or
// a good one, and then those newer than it are forgotten.
func (r *record) revert(d checksum.Digest) {
	if r.Current != nil && r.Current.SHA256.Equal(d) {
		r.stable(*r.Current)
		return
	}
	for i, e := range r.Good {
		if e.SHA256.Equal(d) {
			r.Good = slices.Clone(r.Good[i+1:])
			r.stable(e)
			return
		}
	}
}

func (r *record) stable(e entry) {
	r.Phase, r.Current, r.Trial = phaseStable, &e, nil
}

// slots returns the digests that the record names, whose files must stay.
func (r *record) slots() []checksum.Digest {
	var all []checksum.Digest
	if r.Current != nil {
		all = append(all, r.Current.SHA256)
	}
	for _, e := range r.Good {
		all = append(all, e.SHA256)
	}
	if r.Trial != nil {
		all = append(all, r.Trial.Candidate.SHA256, r.Trial.Fallback)
	}
	if r.Spare != nil {
		all = append(all, r.Spare.SHA256)
	}
	return all
}

// errDamaged is returned for bytes that are no record: nothing of them is used.
var errDamaged = errors.New("damaged record")

func encodeRecord(r record) ([]byte, error) {
	for {
		body, err := plainJSON(r)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(body)
		line := fmt.Appendf(nil, `{"format":%d,"sha256":"%x","record":%s}`+"\n", recordFormat, sum, body)
		if len(line) <= maxRecord {
			return line, nil
		}
		if !r.shrink() {
			return nil, fmt.Errorf("the record has %d bytes, more than %d", len(line), maxRecord)
		}
	}
}

// shrink forgets what the record can do without, one thing at a time, and reports
// whether there was any: a way back must not fail because the record is full.
func (r *record) shrink() bool {
	for _, extra := range r.extras() {
		if largest, ok := largestKey(extra); ok {
			delete(extra, largest)
			return true
		}
	}
	for i := range r.Rejected { // oldest first
		if r.Rejected[i].Reason != "" {
			r.Rejected[i].Reason = ""
			return true
		}
	}
	for i := range r.Good {
		if e := &r.Good[i]; e.URL != "" {
			e.URL = ""
			return true
		}
	}
	if len(r.Refusals) > 0 {
		r.Refusals = nil
		return true
	}
	if r.Trial != nil && len(r.Trial.Failures) > 1 {
		r.Trial.Failures = r.Trial.Failures[len(r.Trial.Failures)-1:]
		return true
	}
	for i := range r.Rejected {
		if r.Rejected[i].Version != "" {
			r.Rejected[i].Version = ""
			return true
		}
	}
	return false
}

// extras returns the unknown keys of every level.
func (r *record) extras() []map[string]json.RawMessage {
	all := []map[string]json.RawMessage{r.extra}
	if r.Current != nil {
		all = append(all, r.Current.extra)
	}
	for _, e := range r.Good {
		all = append(all, e.extra)
	}
	if r.Trial != nil {
		all = append(all, r.Trial.extra, r.Trial.Candidate.extra)
	}
	if r.Spare != nil {
		all = append(all, r.Spare.extra)
	}
	for _, f := range r.Refusals {
		all = append(all, f.extra)
	}
	for _, j := range r.Rejected {
		all = append(all, j.extra)
	}
	return all
}

func largestKey(m map[string]json.RawMessage) (string, bool) {
	if len(m) == 0 {
		return "", false
	}
	return slices.MaxFunc(slices.Sorted(maps.Keys(m)), func(a, b string) int {
		return cmp.Compare(len(m[a]), len(m[b]))
	}), true
}

// plainJSON is json.Marshal without the escapes for HTML, which cost five bytes each.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

func decodeRecord(data []byte) (record, error) {
	var env struct {
		Format int             `json:"format"`
		SHA256 string          `json:"sha256"`
		Record json.RawMessage `json:"record"`
	}
	if len(data) > maxRecord || json.Unmarshal(data, &env) != nil || env.Format < recordFormat {
		return record{}, errDamaged
	}
	if env.Format > recordFormat {
		return record{}, ErrRecordFormat
	}
	sum := sha256.Sum256(env.Record)
	if hex.EncodeToString(sum[:]) != env.SHA256 {
		return record{}, errDamaged
	}
	var r record
	if err := json.Unmarshal(env.Record, &r); err != nil {
		return record{}, fmt.Errorf("%w: %v", errDamaged, err)
	}
	if err := r.validate(); err != nil {
		return record{}, err
	}
	return r, nil
}

func (r *record) validate() error {
	bad := func(d checksum.Digest) bool { return d.Algorithm() != checksum.SHA256 }
	switch {
	case r.Phase != phaseStable && r.Phase != phaseTrial,
		(r.Phase == phaseTrial) != (r.Trial != nil),
		r.Current != nil && bad(r.Current.SHA256),
		r.Trial != nil && bad(r.Trial.Candidate.SHA256),
		r.Trial != nil && (r.Trial.Expired || r.Trial.Max > 0) && bad(r.Trial.Fallback),
		r.Spare != nil && bad(r.Spare.SHA256),
		slices.ContainsFunc(r.Good, func(e entry) bool { return bad(e.SHA256) }),
		slices.ContainsFunc(r.Rejected, func(j rejection) bool { return bad(j.SHA256) }):
		return errDamaged
	}
	return nil
}

// Each type keeps the keys that it does not know.

func (r *record) UnmarshalJSON(b []byte) (err error) {
	type plain record
	r.extra, err = decodeKeeping(b, (*plain)(r))
	return err
}

func (r record) MarshalJSON() ([]byte, error) {
	type plain record
	return encodeKeeping(plain(r), r.extra)
}

func (e *entry) UnmarshalJSON(b []byte) (err error) {
	type plain entry
	e.extra, err = decodeKeeping(b, (*plain)(e))
	return err
}

func (e entry) MarshalJSON() ([]byte, error) {
	type plain entry
	return encodeKeeping(plain(e), e.extra)
}

func (t *trial) UnmarshalJSON(b []byte) (err error) {
	type plain trial
	t.extra, err = decodeKeeping(b, (*plain)(t))
	return err
}

func (t trial) MarshalJSON() ([]byte, error) {
	type plain trial
	return encodeKeeping(plain(t), t.extra)
}

func (j *rejection) UnmarshalJSON(b []byte) (err error) {
	type plain rejection
	j.extra, err = decodeKeeping(b, (*plain)(j))
	return err
}

func (j rejection) MarshalJSON() ([]byte, error) {
	type plain rejection
	return encodeKeeping(plain(j), j.extra)
}

// decodeKeeping decodes an object into *known and returns the keys it has no field for.
func decodeKeeping(data []byte, known any) (map[string]json.RawMessage, error) {
	if err := json.Unmarshal(data, known); err != nil {
		return nil, err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	t := reflect.TypeOf(known).Elem()
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "" {
			delete(all, name)
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	return all, nil
}

// encodeKeeping encodes known with the unknown keys behind its own.
func encodeKeeping(known any, extra map[string]json.RawMessage) ([]byte, error) {
	b, err := plainJSON(known)
	if err != nil || len(extra) == 0 {
		return b, err
	}
	b = bytes.TrimSuffix(b, []byte("}"))
	for _, k := range slices.Sorted(maps.Keys(extra)) {
		name, err := json.Marshal(k)
		if err != nil {
			return nil, err
		}
		b = append(append(append(append(b, ','), name...), ':'), extra[k]...)
	}
	return append(b, '}'), nil
}

// clip cuts text for the record, which has no room for the whole of it.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}
