package selfupdate

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A machine that has no memory left kills every program at its start, the one before
// too: no sign of a crash.
func TestKilledBeforeBegin(t *testing.T) {
	for _, tt := range []struct {
		name    string
		end     Ending
		class   string
		verdict string
	}{
		{"out of memory", Ending{Killed: true, Detail: "oom-kill, killed KILL"}, classUnhealthy, verdictPending},
		{"a crash", Ending{Detail: "signal SEGV"}, classCrash, verdictGuilty},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := trialMachine(t)
			for range 3 {
				m.pre()
				require.NoError(t, m.helper().Post(t.Context(), tt.end))
			}
			require.True(t, m.pre().RolledBack)
			j := m.record().Rejected[0]
			assert.Equal(t, tt.class, j.Class)
			assert.Equal(t, tt.verdict, j.Verdict)
		})
	}
}

// While the restart that Tick asked for goes on, an operator goes back one more.
func TestRestartedMeanwhile(t *testing.T) {
	for _, changed := range []bool{true, false} {
		m := newMachine(t, installed(t, "s0"), system())
		for _, v := range []string{"s1", "s2"} {
			if v == "s2" {
				u, _ := m.begin()
				require.NoError(t, u.Confirm(t.Context()))
			}
			_, err := m.apply(v)
			require.NoError(t, err)
		}
		m.pre()
		m.clock.pass(10 * time.Minute)
		h := m.helper()
		c, err := h.Tick(t.Context())
		require.NoError(t, err)
		require.True(t, c.Restart)
		m.pre() // of the restart
		require.False(t, m.record().PendingRestart)
		if changed {
			operator := m.process()
			operator.own, operator.target.own = false, false
			_, err := operator.Rollback(t.Context(), RollbackOptions{})
			require.NoError(t, err)
			require.True(t, m.record().PendingRestart)
		}
		require.NoError(t, h.Restarted(t.Context()))
		c, err = h.Tick(t.Context())
		require.NoError(t, err)
		assert.Equal(t, changed, c.Restart, "what runs is another file than the target: %v", changed)
		require.NoError(t, h.Restarted(t.Context()))
		c, err = h.Tick(t.Context())
		require.NoError(t, err)
		assert.False(t, c.Restart)
	}
}

// Somebody holds the record: the start is not counted, but watched all the same.
func TestBeginWithoutTheLock(t *testing.T) {
	m := trialMachine(t)
	release, err := m.sys.lock(m.helper().target.stateLock())
	require.NoError(t, err)
	u := m.process()
	s, err := u.Begin(t.Context())
	require.ErrorIs(t, err, ErrBusy)
	assert.Equal(t, Start{OnTrial: true, Version: "s2", Left: 3, Deadline: 10 * time.Minute}, s)
	release()
	assert.Zero(t, m.record().Trial.Started)
	require.ErrorIs(t, u.Guard(t.Context()), ErrExpired)
	assert.True(t, m.pre().RolledBack)
}

// The program was left while its Begin waited for the record: it changes nothing more.
func TestBeginOfAProgramThatIsLeft(t *testing.T) {
	m := trialMachine(t)
	u := m.process()
	require.NoError(t, os.Link(m.path, m.path+"-running")) // as a process does, so that no other file gets its inode
	release, err := m.sys.lock(m.helper().target.stateLock())
	require.NoError(t, err)
	left := false
	u.target.sys.sleep = func(context.Context, time.Duration) error {
		if release(); !left {
			left = true
			_, err := m.process().Rollback(t.Context(), RollbackOptions{})
			require.NoError(t, err)
			_, err = m.apply("s3")
			require.NoError(t, err)
		}
		return nil
	}
	s, err := u.Begin(t.Context())
	require.NoError(t, err)
	require.True(t, left)
	assert.Equal(t, Start{Restart: true}, s)
	assert.Equal(t, "s3", m.at())
	assert.Zero(t, m.record().Trial.Started, "of s3, which was not started")
}

// A probe, or a copy somewhere else, is no start of the program.
func TestBeginOfACopy(t *testing.T) {
	m := trialMachine(t)
	copied := installed(t, "s2")
	u := m.process()
	var err error
	u.running, err = os.Lstat(copied)
	require.NoError(t, err)
	s, err := u.Begin(t.Context())
	require.NoError(t, err)
	assert.Zero(t, s)
	assert.Zero(t, m.record().Trial.Started)
	require.NoError(t, u.Confirm(t.Context()))
	assert.Equal(t, phaseTrial, m.record().Phase)
	m.begin() // the control
	assert.Equal(t, 1, m.record().Trial.Started)
}

// A start that ended with the machine says as little before Begin as after it.
func TestDownWithTheMachine(t *testing.T) {
	for _, begins := range []bool{false, true} {
		m := trialMachine(t)
		for i := range 3 {
			require.True(t, m.pre().OnTrial)
			if begins {
				m.begin()
			}
			m.clock.boot = "boot" + string(rune('2'+i))
		}
		require.True(t, m.pre().RolledBack)
		j := m.record().Rejected[0]
		assert.Equal(t, classUnhealthy, j.Class, "begins: %v", begins)
		assert.Equal(t, verdictPending, j.Verdict, "begins: %v", begins)
	}
}

// Timers that overlap, of the same or of several helpers: one way back, one verdict.
func TestTicksAtOnce(t *testing.T) {
	m := trialMachine(t)
	m.pre()
	m.clock.pass(10 * time.Minute)
	shared := m.helper()
	shared.target.sys.sleep = system().sleep // the machine's own passes its time
	var all sync.WaitGroup
	for i := range 8 {
		h := shared
		if i%2 == 0 {
			h = m.helper()
			h.target.sys.sleep = system().sleep
		}
		all.Go(func() {
			c, err := h.Tick(t.Context())
			assert.NoError(t, err)
			assert.True(t, c.Restart)
		})
	}
	all.Wait()
	assert.Equal(t, "s1", m.at())
	assert.Len(t, m.record().Rejected, 1)
	require.NoError(t, shared.Restarted(t.Context()))
	assert.False(t, m.record().PendingRestart)
}
