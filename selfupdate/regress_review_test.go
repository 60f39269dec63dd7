package selfupdate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func rel512(t *testing.T, version string) *release {
	r := releaseOf(t, version, version)
	h := checksum.SHA512.New()
	_, _ = h.Write(contents[version])
	sum := checksum.Of(checksum.SHA512, h).Hex()
	r.Lookup = func(name string) (Asset, error) {
		if name == "app.sha512" {
			return r.asset(version, name, []byte(sum+"  app\n")), nil
		}
		return Asset{}, fmt.Errorf("%w: %q", ErrNotFound, name)
	}
	return r
}

func hash512(t *testing.T) checksum.Digest {
	h := checksum.SHA512.New()
	h.Write([]byte("x"))
	return checksum.Of(checksum.SHA512, h)
}

func threeMachine(t *testing.T) *machine {
	m := trialMachine(t)
	u, _ := m.begin()
	require.NoError(t, u.Confirm(t.Context()))
	return m
}

// TestRestartFailsForAConfirmedProgram: a restart that is said to have failed after the program confirmed itself leaves it.
func TestRestartFailsForAConfirmedProgram(t *testing.T) {
	m := newMachine(t, installed(t, "s1"), system())
	cfg := m.cfg
	cfg.Restart = func(ctx context.Context) error {
		m.pre()
		require.NoError(t, m.helper().Confirm(ctx, ConfirmOptions{}))
		return errors.New("timed out waiting for the port")
	}
	u, err := newUpdater(cfg, m.sys)
	require.NoError(t, err)
	u.own = false
	_, err = u.Apply(t.Context(), releaseOf(t, "s2", "s2").Release)
	t.Log(err)
	assert.Equal(t, "s2", m.at(), "I7")
	t.Logf("%+v", m.record().Rejected)
}

// TestRestartFailsAfterTheWayBack: nor does one that fails after the way back go back once more.
func TestRestartFailsAfterTheWayBack(t *testing.T) {
	m := threeMachine(t) // s2 current, s1 good
	cfg := m.cfg
	n := 0
	cfg.Restart = func(ctx context.Context) error {
		if n++; n > 1 {
			return nil
		}
		m.pre()
		m.clock.pass(11 * time.Minute)
		c, err := m.helper().Tick(ctx)
		require.NoError(t, err)
		require.True(t, c.Restart)
		require.Equal(t, "s2", m.at())
		return errors.New("it never got healthy")
	}
	u, err := newUpdater(cfg, m.sys)
	require.NoError(t, err)
	u.own = false
	_, err = u.Apply(t.Context(), releaseOf(t, "s3", "s3").Release)
	t.Log(err)
	assert.Equal(t, "s2", m.at())
	for _, j := range m.record().Rejected {
		t.Logf("%s %s %s", j.Version, j.Class, j.Verdict)
		assert.NotEqual(t, digests["s2"], j.SHA256)
	}
}

// TestRestartFailsWithoutATrial: without a trial nothing is rolled back, also not when the record is unfinished.
func TestRestartFailsWithoutATrial(t *testing.T) {
	m := newMachine(t, installed(t, "s1"), system())
	cfg := m.cfg
	cfg.Trial = nil
	switched, full := false, true
	m.sys = hooked(m.sys, func(op, path string) error {
		if op == "commit" {
			switched = true
		}
		if switched && full && op == "create" {
			return syscall.ENOSPC
		}
		return nil
	})
	cfg.Restart = func(c context.Context) error { full = false; return errors.New("dbus") }
	u, err := newUpdater(cfg, m.sys)
	require.NoError(t, err)
	u.own = false
	u.target.restarts = true
	_, err = u.Apply(t.Context(), releaseOf(t, "s2", "s2").Release)
	t.Log(err)
	assert.Equal(t, "s2", m.at())
	t.Log(m.record().Rejected)
}

// TestRollbackOfAnExpiredTrial: rolled back by hand while it is on its way back already: that is one step, not two.
func TestRollbackOfAnExpiredTrial(t *testing.T) {
	m := threeMachine(t)
	_, err := m.apply("s3")
	require.NoError(t, err)
	m.pre()
	u, _ := m.begin()
	require.ErrorIs(t, u.Guard(t.Context()), ErrExpired)
	res, err := m.process().Rollback(t.Context(), RollbackOptions{Reason: "by hand"})
	require.NoError(t, err)
	t.Logf("%+v", res)
	assert.Equal(t, "s2", m.at())
	for _, j := range m.record().Rejected {
		t.Logf("%s %s %s", j.Version, j.Class, j.Verdict)
		assert.NotEqual(t, digests["s2"], j.SHA256)
	}
}

func TestRollbackOfAnExpiredTrialOfTwo(t *testing.T) {
	m := trialMachine(t)
	m.pre()
	u, _ := m.begin()
	require.ErrorIs(t, u.Guard(t.Context()), ErrExpired)
	_, err := m.process().Rollback(t.Context(), RollbackOptions{Reason: "by hand"})
	assert.NoError(t, err)
	assert.Equal(t, "s1", m.at())
	t.Logf("%+v", m.record().Rejected)
}

// TestRollbackTypedAgain: a rollback that was killed and is typed again goes back one.
func TestRollbackTypedAgain(t *testing.T) {
	m := threeMachine(t)
	_, err := m.apply("s3")
	require.NoError(t, err)
	u, _ := m.begin()
	require.NoError(t, u.Confirm(t.Context()))
	sys := m.sys
	killed := false
	m.sys = hooked(sys, func(op, path string) error {
		if op == "commit" {
			killed = true
		}
		if killed {
			return errors.New("killed")
		}
		return nil
	})
	_, err = m.process().Rollback(t.Context(), RollbackOptions{})
	require.Error(t, err)
	m.sys = sys
	require.Equal(t, "s3", m.at())
	res, err := m.process().Rollback(t.Context(), RollbackOptions{})
	require.NoError(t, err)
	t.Logf("%+v", res)
	assert.Equal(t, "s2", m.at(), "one back was asked for, twice, as the first did not return")
}

// TestConfirmWaitsWhileItIsLeft: a Confirm that waited for the lock while the tick went back is too late.
func TestConfirmWaitsWhileItIsLeft(t *testing.T) {
	m := trialMachine(t)
	m.pre()
	u, s := m.begin()
	require.True(t, s.OnTrial)
	plain := m.sys
	fired := false
	u.target.sys = hooked(plain, func(op, path string) error {
		if op == "lock" && strings.HasSuffix(path, "state.lock") && !fired {
			fired = true // Tick has it
			m.clock.pass(10 * time.Minute)
			c, err := m.helper().Tick(t.Context())
			require.NoError(t, err)
			require.True(t, c.Restart)
		}
		return nil
	})
	err := u.Confirm(t.Context())
	assert.ErrorIs(t, err, ErrExpired)
	assert.Equal(t, "s1", m.at())
	j := m.record().Rejected[0]
	assert.Equal(t, verdictPending, j.Verdict)
	assert.Zero(t, j.Counted)
}

// TestTickKilledBeforeItsRecord: a tick that was killed after the way back: the next one still has the hung program restarted.
func TestTickKilledBeforeItsRecord(t *testing.T) {
	m := trialMachine(t)
	m.pre()
	m.clock.pass(11 * time.Minute)
	sys := m.sys
	back := false
	m.sys = hooked(sys, func(op, path string) error {
		if op == "commit" {
			back = true
		} else if back && op == "create" {
			return errors.New("killed")
		}
		return nil
	})
	_, err := m.helper().Tick(t.Context())
	require.Error(t, err)
	require.Equal(t, "s1", m.at())
	m.sys = sys
	require.True(t, m.record().PendingRestart)
	c, err := m.helper().Tick(t.Context())
	require.NoError(t, err)
	assert.True(t, c.Restart, "what runs is the candidate, hung")
	c, err = m.helper().Tick(t.Context())
	require.NoError(t, err)
	assert.True(t, c.Restart)
}

func TestTickOfADeletedTarget(t *testing.T) {
	m := trialMachine(t)
	m.pre()
	require.NoError(t, os.Remove(m.path))
	m.clock.pass(11 * time.Minute)
	c, err := m.helper().Tick(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "s1", m.at())
	assert.True(t, c.Restart)
}

// TestConfirmFromOutsideBeforeTheRestart: what runs before the restart is not what a confirmation from outside would be of.
func TestConfirmFromOutsideBeforeTheRestart(t *testing.T) {
	m := trialMachine(t)
	m.pre()
	m.clock.pass(10 * time.Minute)
	c, err := m.helper().Tick(t.Context())
	require.NoError(t, err)
	require.True(t, c.Restart)
	// somebody looks at the service, which still is the candidate, and it is well
	err = m.helper().Confirm(t.Context(), ConfirmOptions{})
	assert.Error(t, err)
	assert.Equal(t, verdictPending, m.record().Rejected[0].Verdict)
	assert.Zero(t, m.record().Rejected[0].Counted)
}

func TestConfirmOfAnotherProgramBeforeItsRestart(t *testing.T) {
	m := newMachine(t, installed(t, "s1"), system())
	cfg := m.cfg
	ctx, cancel := context.WithCancel(t.Context())
	cfg.Restart = func(c context.Context) error { cancel(); return c.Err() }
	u, err := newUpdater(cfg, m.sys)
	require.NoError(t, err)
	u.own = false
	_, err = u.Apply(ctx, releaseOf(t, "s2", "s2").Release)
	require.Error(t, err)
	require.True(t, m.record().PendingRestart)
	// the loop looks at the service, which is s1 still, and it is well
	assert.Error(t, u.Confirm(t.Context()), "s2 never ran")
	assert.Equal(t, phaseTrial, m.record().Phase)
}

func TestConfirmAgainAfterAFailedFlush(t *testing.T) {
	m := trialMachine(t)
	m.begin()
	m.begin()
	u, s := m.begin()
	require.Zero(t, s.Left)
	tt := m.helper().target
	before, err := os.ReadFile(tt.record())
	require.NoError(t, err)
	synced := 0
	fail := true
	u.target.sys = hooked(m.sys, func(op, path string) error {
		if op == "syncDir" && path == tt.state {
			if fail {
				fail = false
				return syscall.EIO
			}
			synced++
		}
		return nil
	})
	require.Error(t, u.Confirm(t.Context()))
	require.NoError(t, u.Confirm(t.Context()))
	assert.Positive(t, synced, "nil, and the rename of the record was never made durable")
	if synced == 0 { // a power cut: the rename did not survive
		require.NoError(t, os.WriteFile(tt.record(), before, 0o600))
		m.clock.boot = "boot2"
		s := m.pre()
		assert.False(t, s.RolledBack, "I7")
	}
}

// TestLeftoverTrialDurable: which file is at the target must be durable before the record says that the trial is over.
func TestLeftoverTrialDurable(t *testing.T) {
	m := trialMachine(t)
	m.pre()
	tt := m.helper().target
	sys := m.sys
	m.sys = hooked(sys, func(op, path string) error {
		if op == "create" {
			return syscall.ENOSPC
		}
		if op == "syncDir" && path == tt.dir {
			return syscall.EIO
		}
		return nil
	})
	s, err := m.helper().Pre(t.Context())
	require.Error(t, err)
	t.Logf("%+v", s)
	require.Equal(t, "s1", m.at())
	synced := false
	m.sys = hooked(sys, func(op, path string) error {
		if op == "syncDir" && path == tt.dir {
			synced = true
		}
		if op == "rename" && path == tt.record() {
			assert.True(t, synced, "record stable before the way back is durable")
		}
		return nil
	})
	u := m.process()
	require.NoError(t, u.Confirm(t.Context()))
	require.Equal(t, phaseStable, m.record().Phase)
	// power cut: the switch back is lost
	if !synced {
		tmp := filepath.Join(filepath.Dir(m.path), "x")
		require.NoError(t, os.Link(tt.slot(digests["s2"]), tmp))
		require.NoError(t, os.Rename(tmp, m.path))
		m.clock.boot = "boot2"
		m.sys = sys
		m.pre()
		r := m.record()
		assert.Equal(t, digests["s1"], r.Current.SHA256, "I4: an unconfirmed program is current, Confirmed %v, phase %s", r.Current.Confirmed, r.Phase)
	}
}

// TestUpToDateOnTrialWithCopies: up to date on trial, also where the target had to be a copy, or was touched.
func TestUpToDateOnTrialWithCopies(t *testing.T) {
	m := newMachine(t, installed(t, "s1"), system())
	m.sys = hooked(m.sys, func(op, path string) error {
		if op == "link" {
			return &os.LinkError{Op: op, New: path, Err: syscall.EPERM}
		}
		return nil
	})
	_, err := m.apply("s2")
	require.NoError(t, err)
	m.pre()
	u, s := m.begin()
	require.True(t, s.OnTrial)
	res, err := u.Apply(t.Context(), releaseOf(t, "s2", "s2").Release)
	assert.NoError(t, err)
	assert.True(t, res.OnTrial)
	require.NoError(t, u.Confirm(t.Context()))
	res, err = u.Apply(t.Context(), releaseOf(t, "s2", "s2").Release)
	require.NoError(t, err)
	assert.Equal(t, UpToDate, res.Outcome)
}

func TestUpToDateOnTrialTouched(t *testing.T) {
	m := trialMachine(t)
	u, _ := m.begin()
	require.NoError(t, os.Chtimes(m.path, time.Now(), time.Unix(5e8, 0)))
	_, err := u.Apply(t.Context(), releaseOf(t, "s2", "s2").Release)
	assert.NoError(t, err)
}

// TestGuardOnAReadOnlyDisk: a start that can't be recorded and can't go back has its deadline all the same.
func TestGuardOnAReadOnlyDisk(t *testing.T) {
	m := trialMachine(t)
	m.sys = hooked(m.sys, func(op, path string) error {
		switch op {
		case "create", "write", "link", "mkdir", "rename", "commit", "remove":
			return &os.PathError{Op: op, Path: path, Err: syscall.EROFS}
		}
		return nil
	})
	u := m.process()
	s, err := u.Begin(t.Context())
	t.Logf("%+v %v", s, err)
	require.Error(t, err)
	require.False(t, s.Restart)
	require.True(t, s.OnTrial)
	before := m.clock.mono
	gerr := u.Guard(t.Context())
	t.Log(gerr)
	assert.Greater(t, m.clock.mono-before, time.Minute)
}

// TestConfirmDuringAKilledRollback: confirm says nothing good of a program that is on its way back.
func TestConfirmDuringAKilledRollback(t *testing.T) {
	m := threeMachine(t)
	u := m.process()
	_, err := u.Begin(t.Context())
	require.NoError(t, err)
	sys := m.sys
	killed := false
	m.sys = hooked(sys, func(op, path string) error {
		if op == "commit" {
			killed = true
		}
		if killed {
			return errors.New("killed")
		}
		return nil
	})
	_, err = m.process().Rollback(t.Context(), RollbackOptions{})
	require.Error(t, err)
	m.sys = sys
	require.Equal(t, "s2", m.at())
	t.Logf("%+v", m.record().Trial)
	err = u.Confirm(t.Context())
	t.Log(err)
	m.pre()
	if err == nil {
		assert.Equal(t, "s2", m.at(), "I7")
	}
}

// TestTickAfterARetreat: the time in which the program before ran is not the candidate's.
func TestTickAfterARetreat(t *testing.T) {
	m := trialMachine(t)
	m.pre() // ends, nobody saw it
	sys := m.sys
	m.sys = hooked(sys, func(op, path string) error {
		if op == "create" {
			return syscall.ENOSPC
		}
		return nil
	})
	s, err := m.helper().Pre(t.Context())
	require.Error(t, err)
	require.True(t, s.RolledBack)
	m.sys = sys
	m.clock.pass(11 * time.Minute)
	_, err = m.helper().Tick(t.Context())
	require.NoError(t, err)
	assert.Empty(t, m.record().Rejected, "a full disk kept it from its start")
}

// TestPostOfTheProgramBefore: an end of the program before says nothing about the candidate.
func TestPostOfTheProgramBefore(t *testing.T) {
	m := trialMachine(t)
	m.pre() // start 1: crashes; post can't record it: full
	sys := m.sys
	m.sys = hooked(sys, func(op, path string) error {
		if op == "create" {
			return syscall.ENOSPC
		}
		return nil
	})
	_ = m.helper().Post(t.Context(), Ending{Detail: "SEGV"})
	s, err := m.helper().Pre(t.Context())
	require.Error(t, err)
	require.True(t, s.RolledBack)
	m.sys = sys
	require.NoError(t, m.helper().Post(t.Context(), Ending{Orderly: true})) // of the fallback
	starts := 1
	for m.pre().OnTrial {
		starts++
	}
	assert.LessOrEqual(t, starts, 3, "I3")
}

// TestTriedAgainByTheOtherDigest: tried again from the disk, also when the publisher lists SHA-512 only.
func TestTriedAgainByTheOtherDigest(t *testing.T) {
	m := newMachine(t, installed(t, "s1"), system())
	rel := rel512(t, "s2")
	_, err := m.process().Apply(t.Context(), rel.Release)
	require.NoError(t, err)
	for try := 1; try <= 2; try++ {
		m.pre()
		u, _ := m.begin()
		require.ErrorIs(t, u.Guard(t.Context()), ErrExpired)
		require.True(t, m.pre().RolledBack)
		u, _ = m.begin()
		_, err = u.Apply(t.Context(), rel.Release)
		require.ErrorIs(t, err, ErrRejected)
		t.Log("downloads", rel.opened["app"], m.record().Rejected[0].Published)
		require.NoError(t, u.Confirm(t.Context()))
		_, err = u.Apply(t.Context(), rel.Release)
		t.Log(err, "downloads", rel.opened["app"])
	}
	assert.Equal(t, 1, rel.opened["app"])
}

// TestSweepDuringAStart: cleaning does not take what a start is about to rename.
func TestSweepDuringAStart(t *testing.T) {
	m := threeMachine(t)
	require.NoError(t, os.Remove(m.path)) // gone: pre puts it back
	sys := m.sys
	fired := false
	m.sys = hooked(sys, func(op, path string) error {
		if op == "commit" && !fired {
			fired = true
			tt := m.helper().target
			tt.sys = sys
			tt.tidy() // a Confirm, or an Apply, that cleans
		}
		return nil
	})
	s, err := m.helper().Pre(t.Context())
	t.Logf("%+v", s)
	require.NoError(t, err)
}

// TestGoodProgramAfterAnOutage: a good program that failed in an outage stays a way back.
func TestGoodProgramAfterAnOutage(t *testing.T) {
	m := threeMachine(t) // s2, before it s1
	_, err := m.apply("s1")
	require.NoError(t, err)
	m.pre()
	u, _ := m.begin()
	require.ErrorIs(t, u.Guard(t.Context()), ErrExpired) // an outage
	require.True(t, m.pre().RolledBack)
	u, _ = m.begin()
	m.clock.pass(time.Hour)
	require.NoError(t, u.Confirm(t.Context())) // inconclusive
	require.Equal(t, verdictInconclusive, m.record().Rejected[0].Verdict)
	_, err = u.Rollback(t.Context(), RollbackOptions{})
	assert.NoError(t, err, "s1 was confirmed once, and is on disk")
}

// TestSpareMakesRoom: on a full disk the program that is kept to be tried again makes room first.
func TestSpareMakesRoom(t *testing.T) {
	m := trialMachine(t)
	m.pre()
	u, _ := m.begin()
	require.ErrorIs(t, u.Guard(t.Context()), ErrExpired)
	m.pre()
	u, _ = m.begin()
	require.NoError(t, u.Confirm(t.Context())) // inconclusive, spare
	_, err := m.apply("s3")
	require.NoError(t, err)
	m.pre()
	u, _ = m.begin()
	t.Logf("%v", m.record().Spare != nil)
	full := true
	u.target.sys = hooked(m.sys, func(op, path string) error {
		if op == "remove" && strings.Contains(path, "slots") {
			full = false
		}
		if full && op == "create" {
			return syscall.ENOSPC
		}
		return nil
	})
	assert.NoError(t, u.Confirm(t.Context()))
}

// TestRecordOfTheGreatest: a record of the greatest values that there may be can be written.
func TestRecordOfTheGreatest(t *testing.T) {
	v := strings.Repeat("v", 128)
	d512 := hash512(t)
	e := func(n string) entry {
		return entry{SHA256: digests[n], Published: d512, Version: v, URL: strings.Repeat("u", 512), Policy: strings.Repeat("p", 256), Size: 1 << 40, Confirmed: true, Stat: &stamp{1 << 40, 1 << 60, 1 << 60}}
	}
	c := e("s2")
	sp := e("s3")
	r := record{Phase: phaseTrial, Current: &c, Good: []entry{e("s1"), e("s3")}, Spare: &sp, RetryToken: v, Last: &event{Outcome: outcomeOnTrial, Reason: strings.Repeat("r", 256), At: time.Now()}}
	tr := trial{ID: tempName(""), Candidate: e("s1"), Fallback: digests["s2"], Started: 16, Max: 16, Deadline: 1 << 60, BootID: strings.Repeat("b", 36), MonoStart: 1 << 60, Pre: tempName(""), Class: classUnhealthy, Reason: strings.Repeat("r", 256)}
	for range 16 {
		tr.Failures = append(tr.Failures, "unhealthy: "+strings.Repeat("f", 64))
	}
	r.Trial = &tr
	for range 16 {
		r.Rejected = append(r.Rejected, rejection{SHA256: digests["s1"], Published: d512, Version: v, Class: classUnhealthy, Verdict: verdictInconclusive, Tries: 3, Counted: 2, Reason: strings.Repeat("r", 256)})
	}
	_, err := encodeRecord(r)
	assert.NoError(t, err)
	q := strings.Repeat(`"`, 128)
	for i := range r.Rejected {
		r.Rejected[i].Version = q
	}
	_, err = encodeRecord(r)
	assert.NoError(t, err, "quotes")
}

func TestStaleSession(t *testing.T) {
	m := trialMachine(t)
	old, _ := m.begin()
	f, err := os.Open(m.path) // as the kernel does for a process
	require.NoError(t, err)
	defer f.Close()
	_, err = m.process().Rollback(t.Context(), RollbackOptions{KeepAllowed: true})
	require.NoError(t, err)
	_, err = m.apply("s2")
	require.NoError(t, err)
	assert.ErrorIs(t, old.Confirm(t.Context()), ErrExpired)
	assert.ErrorIs(t, old.Guard(t.Context()), ErrExpired)
	assert.Equal(t, phaseTrial, m.record().Phase)
	assert.False(t, m.record().Trial.Expired)
}

// TestWithoutABootID: without a boot id only starts count.
func TestWithoutABootID(t *testing.T) {
	m := newMachine(t, installed(t, "s1"), system())
	m.clock.boot = ""
	_, err := m.apply("s2")
	require.NoError(t, err)
	for try := 0; ; try++ {
		m.pre()
		u, s := m.begin()
		require.True(t, s.OnTrial)
		require.ErrorIs(t, u.Guard(t.Context()), ErrExpired)
		require.True(t, m.pre().RolledBack)
		u, _ = m.begin()
		require.NoError(t, u.Confirm(t.Context()))
		if _, err = m.apply("s2"); err != nil {
			require.ErrorIs(t, err, ErrRejected)
			assert.Equal(t, maxRetries, try)
			break
		}
	}
}

func TestClearPending(t *testing.T) {
	m := trialMachine(t)
	m.pre()
	u, _ := m.begin()
	require.ErrorIs(t, u.Guard(t.Context()), ErrExpired)
	m.pre()
	u, _ = m.begin()
	got, err := u.Clear(t.Context(), ClearOptions{All: true, Token: "1"})
	require.NoError(t, err)
	require.Len(t, got, 1)
	got, err = u.Clear(t.Context(), ClearOptions{All: true, Token: "1"})
	require.NoError(t, err)
	require.Empty(t, got)
	res, err := u.Apply(t.Context(), releaseOf(t, "s2", "s2").Release)
	require.NoError(t, err)
	assert.True(t, res.OnTrial)
}

func TestUnknownKeysThroughATrial(t *testing.T) {
	m := trialMachine(t)
	tt := m.helper().target
	r := m.record()
	r.extra = map[string]json.RawMessage{"new": json.RawMessage(`{"phase":"trial"}`)}
	r.Trial.extra = map[string]json.RawMessage{"verdict": json.RawMessage(`"pending"`)}
	b, err := encodeRecord(r)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(tt.record(), b, 0o600))
	u, _ := m.begin()
	require.NoError(t, u.Confirm(t.Context()))
	assert.Contains(t, m.record().extra, "new")
	assert.True(t, tt.quiet())
}

func TestHigherFormatInATrial(t *testing.T) {
	m := trialMachine(t)
	m.pre()
	tt := m.helper().target
	b, err := os.ReadFile(tt.record())
	require.NoError(t, err)
	b[10] = '2'
	require.NoError(t, os.WriteFile(tt.record(), b, 0o600))
	u := m.process()
	s, err := u.Begin(t.Context())
	t.Logf("%+v %v", s, err)
	t.Log(u.Confirm(t.Context()), u.Guard(t.Context()))
	after, err := os.ReadFile(tt.record())
	require.NoError(t, err)
	assert.Equal(t, b, after)
	assert.Equal(t, "s2", m.at())
}
