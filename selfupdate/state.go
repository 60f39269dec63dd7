package selfupdate

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"time"
)

const (
	stateLockWait = 10 * time.Second
	stateLockPoll = 20 * time.Millisecond
)

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
	if err := t.checkState(t.state); err != nil { // else somebody planted it
		return record{}, err
	}
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
// network, probe or hook.
func (t *target) update(ctx context.Context, change func(r *record) error) error {
	release, err := t.acquireState(ctx)
	if err != nil {
		return err
	}
	defer release()
	return t.change(change)
}

// change is update for a caller that holds the lock. change gets what is on disk
// by then; the zero record when there is none or it is damaged. An unchanged record
// is not written.
func (t *target) change(change func(r *record) error) error {
	r, err := t.read()
	if errors.Is(err, errDamaged) {
		t.log.Warn("the record is damaged: starting a new one", "path", t.record())
		r, err = record{damaged: true}, nil
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
	if r.Phase == "" {
		return nil // nothing to say: not a new record, nor one in the place of a damaged one
	}
	after, err := encodeRecord(r)
	if err != nil {
		return failed("write record", t.record(), err)
	}
	if bytes.Equal(before, after) && !r.damaged {
		return nil
	}
	return t.write(after)
}

// changeInRoom is change that, on a full disk, gives up the program that was kept
// to be tried again.
func (t *target) changeInRoom(change func(r *record) error) error {
	err := t.change(change)
	if !isErr(err, ErrNoSpace) {
		return err
	}
	r, rerr := t.read()
	if rerr != nil || !t.spareRoom(r) {
		return err
	}
	return t.change(func(now *record) error {
		now.lose(r.Spare.SHA256)
		return change(now)
	})
}

func (t *target) acquireState(ctx context.Context) (func(), error) {
	if err := t.checkState(t.state); err != nil { // a lock file must not be made in somebody else's directory
		return nil, err
	}
	deadline := t.sys.mono() + stateLockWait
	for {
		release, err := t.sys.lock(t.stateLock())
		if err == nil {
			return release, nil
		}
		if !errors.Is(err, errHeld) {
			return nil, failed("lock record", t.stateLock(), err)
		}
		if t.sys.mono() > deadline {
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
	f.inherit()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	err = join(err, f.Close())
	if err == nil {
		err = t.sys.rename(tmp, t.record())
	}
	if err != nil {
		return failed("write record", t.record(), join(err, t.sys.remove(tmp)))
	}
	return failed("write record", t.record(), t.sys.syncDir(t.state))
}
