package selfupdate

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// clock is the time of a test's machine.
type clock struct {
	mono time.Duration
	boot string
	wall time.Time
}

func (c *clock) pass(d time.Duration) { c.mono += d; c.wall = c.wall.Add(d) }

// machine is one computer with the program at path and a clock of its own.
type machine struct {
	t     testing.TB
	path  string
	sys   ops
	clock *clock
	cfg   Config
}

func newMachine(t testing.TB, path string, sys ops) *machine {
	m := &machine{t: t, path: path, clock: &clock{mono: time.Hour, boot: "boot1", wall: time.Unix(1e9, 0)}}
	m.sys = m.clocked(sys)
	m.cfg = Config{Target: path, Trust: UnsignedChecksum("test"), Trial: &Trial{Starts: 3, Deadline: 10 * time.Minute}}
	return m
}

func (m *machine) clocked(sys ops) ops {
	sys.mono = func() time.Duration { return m.clock.mono }
	sys.boot = func() string { return m.clock.boot }
	sys.now = func() time.Time { return m.clock.wall }
	sys.sleep = func(ctx context.Context, d time.Duration) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		m.clock.pass(d)
		return nil
	}
	return sys
}

// process is one process of the program that is at the target now.
func (m *machine) process() *Updater {
	m.t.Helper()
	u, err := newUpdater(m.cfg, m.sys)
	require.NoError(m.t, err)
	u.own = true
	u.running, err = os.Lstat(m.path)
	require.NoError(m.t, err)
	return u
}

func (m *machine) helper() *Helper {
	m.t.Helper()
	t, err := openTarget(m.path, nil, m.sys)
	require.NoError(m.t, err)
	return &Helper{t}
}

func (m *machine) apply(version string) (Result, error) {
	m.t.Helper()
	return m.process().Apply(m.t.Context(), releaseOf(m.t, version, version).Release)
}

func (m *machine) at() string { m.t.Helper(); return whole(m.t, m.path) }

func (m *machine) record() record {
	m.t.Helper()
	r, err := m.helper().target.read()
	require.NoError(m.t, err)
	return r
}

// begin starts the program without a helper and returns the process and its Start.
func (m *machine) begin() (*Updater, Start) {
	m.t.Helper()
	u := m.process()
	s, err := u.Begin(m.t.Context())
	require.NoError(m.t, err)
	return u, s
}

// pre is a helper's Pre, and then the program's Begin.
func (m *machine) pre() Start {
	m.t.Helper()
	s, err := m.helper().Pre(m.t.Context())
	require.NoError(m.t, err)
	return s
}

func trialMachine(t testing.TB) *machine {
	t.Helper()
	m := newMachine(t, installed(t, "s1"), system())
	res, err := m.apply("s2")
	require.NoError(t, err)
	require.Equal(t, Updated, res.Outcome)
	require.True(t, res.OnTrial)
	require.True(t, res.RestartNeeded)
	require.Equal(t, "s2", m.at())
	return m
}

func TestTrialConfirmed(t *testing.T) {
	for _, helper := range []bool{true, false} {
		m := trialMachine(t)
		if helper {
			assert.Equal(t, Start{OnTrial: true, Version: "s2", Left: 2, Deadline: 10 * time.Minute}, m.pre())
		}
		u, s := m.begin()
		assert.Equal(t, Start{OnTrial: true, Version: "s2", Left: 2, Deadline: 10 * time.Minute}, s)
		assert.Equal(t, 1, m.record().Trial.Started, "counted once")
		_, err := m.apply("s3")
		require.ErrorIs(t, err, ErrOnTrial)
		res, err := m.apply("s2")
		require.NoError(t, err)
		assert.Equal(t, UpToDate, res.Outcome)
		assert.True(t, res.OnTrial)
		require.NoError(t, u.Confirm(t.Context()))
		require.NoError(t, u.Guard(t.Context()))
		st, err := u.Status()
		require.NoError(t, err)
		assert.Equal(t, "stable", st.Phase)
		assert.Equal(t, "s2", st.Current.Version)
		require.Len(t, st.Previous, 1)
		for range 5 {
			m.pre()
			u, s := m.begin()
			assert.False(t, s.OnTrial)
			assert.False(t, s.Restart)
			require.NoError(t, u.Confirm(t.Context()))
		}
		assert.Equal(t, "s2", m.at())
	}
}

// Three starts that never get to Begin: back, and guilty at once.
func TestTrialCrashes(t *testing.T) {
	m := trialMachine(t)
	for range 3 {
		require.True(t, m.pre().OnTrial)
		require.Equal(t, "s2", m.at())
	}
	s := m.pre()
	assert.True(t, s.RolledBack)
	assert.Equal(t, "3 starts, not confirmed: crash: did not get to Begin", s.Reason)
	assert.Equal(t, "s1", m.at())
	u, s := m.begin()
	assert.Zero(t, s)
	require.NoError(t, u.Confirm(t.Context()))
	_, err := m.apply("s2")
	require.ErrorIs(t, err, ErrRejected)
	r := m.record()
	require.Len(t, r.Rejected, 1)
	assert.Equal(t, classCrash, r.Rejected[0].Class)
	assert.Equal(t, verdictGuilty, r.Rejected[0].Verdict)
}

// Without a helper the program itself goes back, once it gets to Begin.
func TestTrialWithoutHelper(t *testing.T) {
	m := trialMachine(t)
	for range 3 {
		_, s := m.begin()
		require.True(t, s.OnTrial)
	}
	_, s := m.begin()
	assert.True(t, s.Restart)
	assert.True(t, s.RolledBack)
	assert.Equal(t, "s1", m.at())
}

// A version that is never healthy is left at the deadline, tried once more, and
// then rejected; all from one download.
func TestTrialUnhealthy(t *testing.T) {
	m := trialMachine(t)
	rel := releaseOf(t, "s2", "s2")
	for try := 1; try <= 2; try++ {
		m.pre()
		u, s := m.begin()
		require.True(t, s.OnTrial)
		require.ErrorIs(t, u.Guard(t.Context()), ErrExpired)
		require.ErrorIs(t, u.Confirm(t.Context()), ErrExpired)
		s = m.pre()
		require.True(t, s.RolledBack)
		require.Equal(t, "s1", m.at())
		u, _ = m.begin()
		_, err := u.Apply(t.Context(), rel.Release)
		require.ErrorIs(t, err, ErrRejected, "pending")
		require.NoError(t, u.Confirm(t.Context()))
		_, err = u.Apply(t.Context(), rel.Release)
		if try == 2 {
			require.ErrorIs(t, err, ErrRejected, "guilty")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, "s2", m.at())
	}
	assert.Zero(t, rel.opened["app"], "the first download is still there")
}

// In an outage the program before is no better: nothing counts against the new one.
func TestTrialOutage(t *testing.T) {
	m := trialMachine(t)
	for range 3 {
		m.pre()
		u, _ := m.begin()
		require.ErrorIs(t, u.Guard(t.Context()), ErrExpired)
		m.pre()
		u, _ = m.begin()
		m.clock.pass(11 * time.Minute) // longer than the deadline
		require.NoError(t, u.Confirm(t.Context()))
		_, err := m.apply("s2")
		require.NoError(t, err)
	}
	m.pre()
	u, s := m.begin()
	require.True(t, s.OnTrial)
	require.NoError(t, u.Confirm(t.Context()))
	assert.Equal(t, "s2", m.at())
	assert.Empty(t, m.record().Rejected)
}

func TestTick(t *testing.T) {
	m := trialMachine(t)
	h := m.helper()
	m.pre()
	c, err := h.Tick(t.Context())
	require.NoError(t, err)
	assert.Equal(t, Check{OnTrial: true, Left: 10 * time.Minute}, c)
	m.clock.pass(10 * time.Minute)
	for range 2 {
		c, err = h.Tick(t.Context())
		require.NoError(t, err)
		assert.True(t, c.Restart)
		assert.Equal(t, "s1", m.at())
	}
	require.NoError(t, h.Restarted(t.Context()))
	c, err = h.Tick(t.Context())
	require.NoError(t, err)
	assert.Zero(t, c)
	assert.Equal(t, classHang, m.record().Rejected[0].Class)
}

func TestTrialFullDisk(t *testing.T) {
	m := trialMachine(t)
	m.pre()
	full := true
	sys := m.sys
	m.sys = hooked(sys, func(op, path string) error {
		if full && (op == "create" || op == "write" || op == "link" || op == "mkdir") {
			return &os.PathError{Op: op, Path: path, Err: syscall.ENOSPC}
		}
		return nil
	})
	s, err := m.helper().Pre(t.Context())
	require.ErrorIs(t, err, ErrNoSpace)
	assert.True(t, s.RolledBack)
	assert.Equal(t, "s1", m.at())
	full = false
	s = m.pre()
	assert.True(t, s.OnTrial)
	assert.Equal(t, "s2", m.at())
	u, _ := m.begin()
	require.NoError(t, u.Confirm(t.Context()))
}

func TestTrialRollback(t *testing.T) {
	m := trialMachine(t)
	m.pre()
	u, _ := m.begin()
	res, err := u.Rollback(t.Context(), RollbackOptions{Reason: "drops packets"})
	require.NoError(t, err)
	assert.Equal(t, RolledBack, res.Outcome)
	assert.True(t, res.RestartNeeded)
	assert.Equal(t, "s1", m.at())
	require.ErrorIs(t, u.Guard(t.Context()), ErrExpired)
	require.ErrorIs(t, u.Confirm(t.Context()), ErrExpired)
	_, err = m.apply("s2")
	require.ErrorIs(t, err, ErrRejected)
	assert.Equal(t, verdictManual, m.record().Rejected[0].Verdict)
}

func TestTrialForeignFile(t *testing.T) {
	m := trialMachine(t)
	m.pre()
	require.NoError(t, os.Remove(m.path))
	copyProgram(t, "s3", m.path)
	s := m.pre()
	assert.False(t, s.OnTrial)
	assert.Equal(t, "s3", m.at())
	r := m.record()
	assert.Equal(t, phaseStable, r.Phase)
	assert.Empty(t, r.Rejected)
	assert.Equal(t, digests["s3"], r.Current.SHA256)
}

func TestQuiet(t *testing.T) {
	m := trialMachine(t)
	tt := m.helper().target
	assert.False(t, tt.quiet(), "on trial")
	u, _ := m.begin()
	require.NoError(t, u.Confirm(t.Context()))
	assert.True(t, tt.quiet())
	data, err := os.ReadFile(tt.record())
	require.NoError(t, err)
	for i := range data {
		damaged := append([]byte(nil), data...)
		damaged[i] ^= 1
		if _, err := decodeRecord(damaged); err != nil {
			assert.False(t, isQuiet(damaged), i)
		}
		assert.False(t, isQuiet(data[:i]))
	}
}

// A tick says nothing about a program that is not running.
func TestTickNotRunning(t *testing.T) {
	for _, tt := range []struct {
		name  string
		do    func(m *machine)
		stays bool
	}{
		{"not started yet, with a helper", func(m *machine) {
			_, err := m.helper().Tick(t.Context())
			require.NoError(t, err)
			m.helper().target.seen(helperMark)
		}, true},
		{"stopped orderly", func(m *machine) {
			m.pre()
			require.NoError(t, m.helper().Post(t.Context(), Ending{Orderly: true}))
		}, true},
		{"running", func(m *machine) { m.pre() }, false},
		{"nothing known, without a helper", func(*machine) {}, false},
		{"down with the machine, without a helper", func(m *machine) {
			m.begin()
			m.clock.boot = "boot2"
			_, err := m.helper().Tick(t.Context())
			require.NoError(t, err)
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := trialMachine(t)
			tt.do(m)
			m.clock.pass(time.Hour)
			c, err := m.helper().Tick(t.Context())
			require.NoError(t, err)
			assert.Equal(t, tt.stays, c.OnTrial)
			assert.Equal(t, !tt.stays, c.Restart)
			assert.Equal(t, map[bool]string{true: "s2", false: "s1"}[tt.stays], m.at())
		})
	}
}

// TestPreMissingTarget: what is gone comes back, or the program before it when
// somebody's own file is gone, of which there is no other copy.
func TestPreMissingTarget(t *testing.T) {
	for _, tt := range []struct {
		name   string
		byHand bool
		want   string
	}{{"an installed program", false, "s2"}, {"a file put there by hand", true, "s2"}} {
		t.Run(tt.name, func(t *testing.T) {
			m := trialMachine(t)
			m.pre()
			require.NoError(t, m.helper().Confirm(t.Context(), ConfirmOptions{Force: true}))
			if tt.byHand {
				require.NoError(t, os.Remove(m.path))
				require.NoError(t, os.WriteFile(m.path, []byte("by hand"), 0o755))
				m.pre()
			}
			require.NoError(t, os.Remove(m.path))
			assert.Contains(t, m.pre().Reason, "put back")
			assert.Equal(t, tt.want, m.at())
			assert.Empty(t, m.pre().Reason)
		})
	}
}

// TestRollbackRestartFails: the error says what is at the target.
func TestRollbackRestartFails(t *testing.T) {
	m := trialMachine(t)
	cfg := m.cfg
	cfg.Restart = func(context.Context) error { return os.ErrDeadlineExceeded }
	u, err := newUpdater(cfg, m.sys)
	require.NoError(t, err)
	u.own = false
	_, err = u.Rollback(t.Context(), RollbackOptions{})
	var e *Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, Restored, e.State)
	assert.Equal(t, "s1", m.at())
	assert.True(t, m.record().PendingRestart)
}

// TestTickNeverStarted: a version that was never started, since the disk was full at
// its start, is not blamed for the time that passes.
func TestTickNeverStarted(t *testing.T) {
	for _, back := range []bool{true, false} { // false is the control: for all that is known it runs
		m := trialMachine(t)
		h := m.helper()
		if back {
			require.NoError(t, os.Rename(h.target.rollback, m.path))
		}
		m.clock.pass(11 * time.Minute)
		c, err := h.Tick(t.Context())
		require.NoError(t, err)
		assert.Equal(t, !back, c.Restart)
		r := m.record()
		assert.Equal(t, phaseStable, r.Phase)
		assert.Equal(t, "s1", m.at())
		assert.Equal(t, back, len(r.Rejected) == 0)
		assert.Equal(t, back, r.Spare != nil && len(r.Rejected) == 0)
	}
}
