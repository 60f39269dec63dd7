package selfupdate

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/checksum"
)

// What an operator types may be meant for what was there a moment ago.
func TestFromAnotherProgram(t *testing.T) {
	for _, tt := range []struct {
		name string
		from checksum.Digest
		ok   bool
	}{
		{"whatever is there", checksum.Digest{}, true},
		{"the program on trial", digests["s2"], true},
		{"another one", digests["s1"], false},
		{"one that is unknown here", digests["s3"], false},
	} {
		t.Run("roll back from "+tt.name, func(t *testing.T) {
			m := trialMachine(t)
			m.pre()
			_, err := m.process().Rollback(t.Context(), RollbackOptions{From: tt.from})
			if tt.ok {
				require.NoError(t, err)
				assert.Equal(t, "s1", m.at())
				return
			}
			require.ErrorIs(t, err, ErrChanged)
			assert.Equal(t, "s2", m.at())
			assert.Equal(t, phaseTrial, m.record().Phase)
			assert.Empty(t, m.record().Rejected)
		})
		t.Run("confirm "+tt.name, func(t *testing.T) {
			m := trialMachine(t)
			m.begin()
			err := m.helper().Confirm(t.Context(), ConfirmOptions{From: tt.from})
			if tt.ok {
				require.NoError(t, err)
				assert.Equal(t, phaseStable, m.record().Phase)
				return
			}
			require.ErrorIs(t, err, ErrChanged)
			assert.Equal(t, phaseTrial, m.record().Phase)
		})
	}
	t.Run("the trial ended by itself", func(t *testing.T) {
		m := trialMachine(t)
		m.pre()
		m.clock.pass(time.Hour)
		_, err := m.helper().Tick(t.Context())
		require.NoError(t, err)
		u := m.process()
		u.own, u.target.own = false, false
		_, err = u.Rollback(t.Context(), RollbackOptions{From: digests["s2"]})
		require.Error(t, err)
		assert.Equal(t, "s1", m.at())
		require.ErrorIs(t, m.helper().Confirm(t.Context(), ConfirmOptions{From: digests["s2"]}), ErrChanged)
	})
}

func TestConfirmWhatDoesNotRun(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(m *machine)
		want error
	}{
		{"never started", func(*machine) {}, ErrNotRunning},
		{"started, not at Begin", func(m *machine) { m.pre() }, ErrNotRunning},
		{"crashed", func(m *machine) {
			m.pre()
			require.NoError(t, m.helper().Post(t.Context(), Ending{Detail: "exit 2"}))
		}, ErrNotRunning},
		{"stopped", func(m *machine) {
			m.pre()
			m.begin()
			require.NoError(t, m.helper().Post(t.Context(), Ending{Orderly: true}))
		}, ErrNotRunning},
		{"running", func(m *machine) { m.pre(); m.begin() }, nil},
		{"running, without a helper", func(m *machine) { m.begin() }, nil},
		{"confirmed from outside, nobody counts", func(m *machine) {
			require.NoError(t, m.helper().target.change(func(r *record) error { r.Trial.Outside = true; return nil }))
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := trialMachine(t)
			tt.do(m)
			err := m.helper().Confirm(t.Context(), ConfirmOptions{})
			if tt.want == nil {
				require.NoError(t, err)
				assert.Equal(t, phaseStable, m.record().Phase)
				return
			}
			require.ErrorIs(t, err, tt.want)
			assert.Equal(t, phaseTrial, m.record().Phase)
			require.NoError(t, m.helper().Confirm(t.Context(), ConfirmOptions{Force: true}))
			assert.Equal(t, phaseStable, m.record().Phase)
		})
	}
}

// A helper that was there before the first update is seen all the same.
func TestProtectionOnAFreshMachine(t *testing.T) {
	m := newMachine(t, installed(t, "s1"), system())
	protection := func() string {
		st, err := m.process().Status()
		require.NoError(t, err)
		return st.Protection
	}
	assert.Equal(t, "no-helper", protection())
	m.pre()
	assert.Equal(t, "no-timer", protection())
	_, err := m.helper().Tick(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "full", protection())
	m.clock.boot = "boot2"
	assert.Equal(t, "no-helper", protection())
	_, err = m.apply("s2")
	require.NoError(t, err)
}

// After a way back that somebody made by hand, what runs is still the other one.
func TestRollbackOfAService(t *testing.T) {
	for _, service := range []bool{true, false} {
		m := trialMachine(t)
		if service {
			m.pre()
		}
		u := m.process()
		u.own, u.target.own = false, false // an operator's tool
		_, err := u.Rollback(t.Context(), RollbackOptions{})
		require.NoError(t, err)
		assert.Equal(t, service, m.record().PendingRestart)
		c, err := m.helper().Tick(t.Context())
		require.NoError(t, err)
		assert.Equal(t, service, c.Restart)
		m.pre()
		assert.False(t, m.record().PendingRestart, "it was started")
	}
}

// Nothing before it, and the program itself is gone: it is put back.
func TestRollbackOfWhatIsGone(t *testing.T) {
	m := trialMachine(t)
	_, err := m.process().Rollback(t.Context(), RollbackOptions{})
	require.NoError(t, err)
	require.Empty(t, m.record().Good)
	require.NoError(t, os.Remove(m.path))
	res, err := Rollback(t.Context(), RollbackOptions{Target: m.path})
	require.NoError(t, err)
	assert.Equal(t, RolledBack, res.Outcome)
	assert.Equal(t, "s1", m.at())
	_, err = Rollback(t.Context(), RollbackOptions{Target: m.path})
	require.ErrorIs(t, err, ErrNoPrevious, "the control: it is there")
}

// A record that was damaged says so afterwards too.
func TestDamagedRecordIsSaid(t *testing.T) {
	m := trialMachine(t)
	m.pre()
	require.NoError(t, os.WriteFile(m.helper().target.record(), []byte("x"), 0o600))
	m.pre()
	st, err := m.process().Status()
	require.NoError(t, err)
	require.NotNil(t, st.Last)
	assert.Equal(t, outcomeAdopted, st.Last.Outcome)
	assert.Contains(t, st.Last.Reason, "the record was damaged")
}
