package selfupdate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/metal-stack/selfreconcile/checksum"
)

// target is one program on disk with its state directory.
type target struct {
	layout
	sys     ops
	log     *slog.Logger
	create  bool   // the program may not be there yet
	version string // of the program that is there, when no record says it
}

const (
	stateLockWait = 10 * time.Second
	stateLockPoll = 20 * time.Millisecond
	spaceMargin   = 1 << 20 // bytes that must remain for the record and the directories
	inodeMargin   = 8
)

// check finds out before any request whether the swap at the end can work.
// It makes and removes one empty file in the target's directory.
func (t *target) check() error {
	fi, err := t.sys.lstat(t.target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if !t.create {
			return failed("check target", t.target, fmt.Errorf("%w (a first install must be allowed)", ErrNoTarget))
		}
	case err != nil:
		return failed("check target", t.target, err)
	case !fi.Mode().IsRegular():
		return failed("check target", t.target, fmt.Errorf("%w: %v", ErrNotRegular, fi.Mode().Type()))
	default:
		if err := t.checkFlags(t.target, "file"); err != nil {
			return err
		}
	}
	return t.checkDir()
}

func (t *target) checkDir() error {
	fi, err := t.sys.lstat(t.dir)
	if err != nil {
		return failed("check directory", t.dir, err)
	}
	if worldWritable(fi) {
		return failed("check directory", t.dir, fmt.Errorf("%w: everybody may write to it", ErrUnsafeDir))
	}
	if err := t.checkFlags(t.dir, "directory"); err != nil {
		return err
	}
	probe := t.dir + string(separator) + tempName(probePrefix)
	f, err := t.sys.create(probe)
	if err != nil {
		return failed("check directory", t.dir, err)
	}
	return failed("check directory", t.dir, errors.Join(f.Close(), t.sys.remove(probe)))
}

func (t *target) checkFlags(path, what string) error {
	fl, err := t.sys.flags(path)
	switch {
	case err != nil:
		return failed("check target", path, err)
	case fl.immutable:
		return failed("check target", path, fmt.Errorf("%w: the %s is immutable: chattr -i", ErrPermission, what))
	case fl.appendOnly:
		return failed("check target", path, fmt.Errorf("%w: the %s is append-only: chattr -a", ErrPermission, what))
	case fl.mountPoint && what == "file":
		return failed("check target", path, fmt.Errorf("%w: mount its directory instead", ErrMountPoint))
	}
	return nil
}

// checkSpace wants room for size bytes (-1: unknown) and the small files.
func (t *target) checkSpace(size int64) error {
	s, err := t.sys.space(t.dir)
	if err != nil {
		return failed("check space", t.dir, err)
	}
	need := uint64(max(size, 0)) + spaceMargin
	switch {
	case s.bytes < need:
		return failed("check space", t.dir, fmt.Errorf("%w: %d KiB are free, %d KiB needed", ErrNoSpace, s.bytes>>10, need>>10))
	case s.inodes < inodeMargin:
		return failed("check space", t.dir, fmt.Errorf("%w: %d inodes are free, %d needed", ErrNoSpace, s.inodes, inodeMargin))
	}
	return nil
}

// makeState makes the state directory, durably, before anything is put in it.
func (t *target) makeState() error {
	for _, d := range []struct{ path, parent string }{{t.state, t.dir}, {t.slots, t.state}} {
		if _, err := t.sys.lstat(d.path); errors.Is(err, fs.ErrNotExist) {
			if err := t.sys.mkdir(d.path); err != nil {
				return failed("make state directory", d.path, err)
			}
			if err := t.sys.syncDir(d.parent); err != nil {
				return failed("make state directory", d.path, err)
			}
		}
		if err := t.checkState(d.path); err != nil {
			return err
		}
	}
	return nil
}

// checkState refuses a state directory that others could have planted or could change.
func (t *target) checkState(path string) error {
	fi, err := t.sys.lstat(path)
	if err != nil {
		return failed("check state directory", path, err)
	}
	if !fi.IsDir() {
		return failed("check state directory", path, fmt.Errorf("%w: not a directory", ErrUnsafeDir))
	}
	if keepsModes && fi.Mode().Perm()&0o022 != 0 {
		return failed("check state directory", path, fmt.Errorf("%w: others may write to it: chmod 700", ErrUnsafeDir))
	}
	parent, err := t.sys.lstat(t.dir)
	if err != nil {
		return failed("check state directory", path, err)
	}
	uid, _ := owner(fi)
	if dirUID, _ := owner(parent); uid >= 0 && uid != 0 && uid != euid() && uid != dirUID {
		return failed("check state directory", path, fmt.Errorf("%w: it belongs to uid %d", ErrUnsafeDir, uid))
	}
	return nil
}

// acquire takes the updater's lock, without waiting.
func (t *target) acquire() (func(), error) {
	if err := t.makeState(); err != nil {
		return nil, err
	}
	release, err := t.sys.lock(t.lock())
	if errors.Is(err, errHeld) {
		return nil, failed("lock", t.lock(), ErrBusy)
	}
	if err != nil {
		return nil, failed("lock", t.lock(), err)
	}
	return release, nil
}

// read returns the record. None is the zero record; a damaged one is errDamaged.
func (t *target) read() (record, error) {
	f, err := t.sys.open(t.record())
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, nil
	}
	if err != nil {
		return record{}, failed("read record", t.record(), err)
	}
	defer func() { _ = f.Close() }()
	data, err := readLimited(f, maxRecord+1)
	if err != nil {
		return record{}, failed("read record", t.record(), err)
	}
	r, err := decodeRecord(data)
	if errors.Is(err, ErrRecordFormat) {
		return record{}, failed("read record", t.record(), err)
	}
	return r, err
}

// update changes the record under its own short lock, which is never held across
// network, probe or hook. change gets what is on disk by then; the zero record
// when there is none or it is damaged. An unchanged record is not written.
func (t *target) update(ctx context.Context, change func(r *record) error) error {
	release, err := t.acquireState(ctx)
	if err != nil {
		return err
	}
	defer release()
	r, err := t.read()
	if errors.Is(err, errDamaged) {
		t.log.Warn("the record is damaged: starting a new one", "path", t.record())
		r, err = record{}, nil
	}
	if err != nil {
		return err
	}
	before, err := encodeRecord(r)
	if err != nil {
		return failed("read record", t.record(), err)
	}
	if err := change(&r); err != nil {
		return err
	}
	after, err := encodeRecord(r)
	if err != nil {
		return failed("write record", t.record(), err)
	}
	if bytes.Equal(before, after) {
		return nil
	}
	return t.write(after)
}

func (t *target) acquireState(ctx context.Context) (func(), error) {
	deadline := t.sys.now().Add(stateLockWait)
	for {
		release, err := t.sys.lock(t.stateLock())
		if err == nil {
			return release, nil
		}
		if !errors.Is(err, errHeld) {
			return nil, failed("lock record", t.stateLock(), err)
		}
		if t.sys.now().After(deadline) {
			return nil, failed("lock record", t.stateLock(), ErrBusy)
		}
		if err := t.sys.sleep(ctx, stateLockPoll); err != nil {
			return nil, failed("lock record", t.stateLock(), err)
		}
	}
}

// write replaces the record durably: its bytes, then its name.
func (t *target) write(data []byte) error {
	tmp := t.temp()
	f, err := t.sys.create(tmp)
	if err != nil {
		return failed("write record", t.record(), err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = t.sys.rename(tmp, t.record())
	}
	if err != nil {
		return failed("write record", t.record(), errors.Join(err, t.sys.remove(tmp)))
	}
	return failed("write record", t.record(), t.sys.syncDir(t.state))
}

// stampOf returns what tells a file from its successor.
func stampOf(fi fs.FileInfo) *stamp {
	return &stamp{Size: fi.Size(), Mtime: fi.ModTime().UnixNano(), Inode: inode(fi)}
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
// that was killed, a file that somebody put there by hand. The updater's lock is held.
func (t *target) settle(ctx context.Context) (record, error) {
	r, err := t.read()
	switch {
	case errors.Is(err, errDamaged):
		err = t.update(ctx, t.adopt)
	case err != nil:
	case r.Phase == phaseTrial:
		err = t.finish(ctx, r)
	case r.Phase == phaseStable && !t.holds(r.Current):
		err = t.update(ctx, t.adopt)
	}
	if err != nil {
		return record{}, err
	}
	if r, err = t.read(); err != nil {
		return record{}, err
	}
	if r.Phase == "" { // in memory only: nothing needs it on disk yet
		if err := t.adopt(&r); err != nil {
			return record{}, err
		}
	}
	return r, t.sweep(r)
}

// finish ends a switch that a killed run left unfinished.
func (t *target) finish(ctx context.Context, r record) error {
	if r.Trial.Max > 0 && !r.Trial.Expired {
		return failed("check record", t.record(), ErrOnTrial)
	}
	if r.Trial.Expired {
		return t.goBack(ctx, r.Trial.Fallback)
	}
	if err := t.sys.syncDir(t.dir); err != nil { // what is seen here must be durable before it is recorded
		return failed("check target", t.dir, err)
	}
	return t.update(ctx, t.finished)
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
	r.Phase, r.Trial = phaseStable, nil
	return t.adopt(r)
}

// adopt takes what is at the target for the current program, whoever put it
// there: it is the operator's choice, and never undone.
func (t *target) adopt(r *record) error {
	there, err := t.identify(*r)
	if err != nil {
		return err
	}
	if there.SHA256.IsZero() { // nothing is there: the record keeps its word for a way back
		r.Phase = phaseStable
		return nil
	}
	switch {
	case r.Current == nil:
		if there.Version == "" {
			there.Version = clip(t.version, maxVersion)
		}
		r.stable(there)
	case r.Current.SHA256.Equal(there.SHA256):
		r.Current.Stat = there.Stat
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
	outcomeCleared    = "cleared"

	probePrefix = ".selfupdate-probe-"
)

func (t *target) event(r *record, outcome, reason string) {
	r.Last = &event{Outcome: outcome, Reason: clip(reason, 256), At: t.sys.now().UTC().Truncate(time.Second)}
}

// sweep removes what killed runs left and the slots that the record doesn't name.
func (t *target) sweep(r record) error {
	keep := map[string]bool{}
	for _, d := range r.slots() {
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
			path := dir.path + string(separator) + name
			if err := t.sys.remove(path); err != nil {
				t.log.Warn("a leftover stays", "path", path, "error", err) // not worth an update
			}
		}
	}
	return nil
}
