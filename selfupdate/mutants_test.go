package selfupdate

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/checksum"
)

// Each test here is the cheapest that sees one of the mutations of tools/mutate
// (make mutate).

var errKilled = errors.New("killed")

// lossyMachine is a machine on trial with s2 whose power can be cut. Its kill
// stops whatever runs, from the first operation on for which it is true.
func lossyMachine(t *testing.T, trial bool) (m *machine, l *lossy, kill *func(op, path string) bool) {
	t.Helper()
	path := installedIn(t, memory(t), "s1")
	l = newLossy(t, filepath.Dir(path))
	kill = new(func(op, path string) bool)
	dead := false
	m = newMachine(t, path, hooked(l.ops(system()), func(op, p string) error {
		if *kill == nil {
			dead = false
			return nil
		}
		if dead = dead || (*kill)(op, p); dead {
			return errKilled
		}
		return nil
	}))
	if trial {
		_, err := m.apply("s2")
		require.NoError(t, err)
		require.Equal(t, "s2", m.at())
	}
	return m, l, kill
}

// cut cuts the power: nothing that was not flushed survives.
func (m *machine) cut(l *lossy) *machine { return m.cutWith(l, l.survivors(0)[0]) }

func (m *machine) cutWith(l *lossy, survives []bool) *machine {
	m.t.Helper()
	t, ok := m.t.(*testing.T)
	require.True(m.t, ok)
	dir := memory(t)
	l.after(t, dir, survives)
	after := newMachine(t, filepath.Join(dir, "app"), system())
	after.clock.boot, after.cfg.Trial = "after the power cut", m.cfg.Trial
	return after
}

// unflushedRecord is the instant between the record's rename and its flush.
func unflushedRecord(m *machine) func(op, path string) bool {
	state, renamed := m.helper().target.state, false
	return func(op, path string) bool {
		renamed = renamed || op == "rename" && path == filepath.Join(state, "state.json")
		return renamed && op == "syncDir" && path == state
	}
}

// unflushedSwap is the instant after the target's rename.
func unflushedSwap() func(op, path string) bool {
	swapped := false
	return func(op, _ string) bool {
		was := swapped
		swapped = swapped || op == "commit"
		return was
	}
}

// What a start found and let run is there after a power cut too, whoever was
// killed before it could flush that.
func TestStartIsDurable(t *testing.T) {
	for _, tt := range []struct {
		name  string
		trial bool
		do    func(m *machine, l *lossy, kill *func(op, path string) bool)
	}{
		{"a trial that was just recorded", false, func(m *machine, _ *lossy, kill *func(op, path string) bool) {
			*kill = unflushedRecord(m)
			_, err := m.apply("s2")
			require.ErrorIs(m.t, err, errKilled)
		}},
		{"a switch that was just made", false, func(m *machine, _ *lossy, kill *func(op, path string) bool) {
			*kill = unflushedSwap()
			_, err := m.apply("s2")
			require.ErrorIs(m.t, err, errKilled)
		}},
		{"a confirmation", true, func(m *machine, _ *lossy, kill *func(op, path string) bool) {
			*kill = unflushedRecord(m)
			require.ErrorIs(m.t, m.helper().Confirm(m.t.Context(), ConfirmOptions{Force: true}), errKilled)
		}},
		{"a way back", true, func(m *machine, _ *lossy, kill *func(op, path string) bool) {
			*kill = unflushedSwap()
			_, err := m.process().Rollback(m.t.Context(), RollbackOptions{})
			require.ErrorIs(m.t, err, errKilled)
		}},
		{"a file that was put there by hand", false, func(m *machine, l *lossy, _ *func(op, path string) bool) {
			_, err := m.apply("s2")
			require.NoError(m.t, err)
			require.NoError(m.t, m.helper().Confirm(m.t.Context(), ConfirmOptions{Force: true}))
			byHand := filepath.Join(filepath.Dir(m.path), "by-hand")
			sys := l.ops(system())
			f, err := sys.create(byHand)
			require.NoError(m.t, err)
			_, err = f.Write(contents["s3"])
			require.NoError(m.t, errors.Join(err, f.Chmod(0o755), f.Sync(), f.Close(), sys.rename(byHand, m.path)))
		}},
	} {
		for _, helper := range []bool{true, false} {
			t.Run(tt.name+map[bool]string{true: ", with a helper", false: ""}[helper], func(t *testing.T) {
				m, l, kill := lossyMachine(t, tt.trial)
				tt.do(m, l, kill)
				*kill = nil
				require.NotEmpty(t, l.pending, "the case is none: nothing was left to flush")
				if helper {
					m.pre()
				} else {
					m.begin()
				}
				after := m.cut(l)
				assert.Equal(t, m.at(), after.at())
				assert.Equal(t, m.record(), after.record())
			})
		}
	}
}

// After Confirm returned nil nothing goes back, also when the one before it was
// killed, or failed, before its record was durable.
func TestConfirmIsDurable(t *testing.T) {
	for _, tt := range []struct {
		name    string
		confirm func(m *machine) error
	}{
		{"in the program", func(m *machine) error {
			u := m.process()
			return u.Confirm(m.t.Context())
		}},
		{"in the program after Begin", func(m *machine) error {
			u, _ := m.begin()
			return u.Confirm(m.t.Context())
		}},
		{"from outside", func(m *machine) error { return m.helper().Confirm(m.t.Context(), ConfirmOptions{Force: true}) }},
	} {
		for _, killed := range []bool{false, true} {
			t.Run(tt.name+map[bool]string{true: ", again", false: ""}[killed], func(t *testing.T) {
				m, l, kill := lossyMachine(t, true)
				if killed {
					*kill = unflushedRecord(m)
					require.ErrorIs(t, m.helper().Confirm(t.Context(), ConfirmOptions{Force: true}), errKilled)
					*kill = nil
				}
				require.NoError(t, tt.confirm(m))
				after := m.cut(l)
				assert.Equal(t, "s2", after.at())
				assert.Equal(t, phaseStable, after.record().Phase)
			})
		}
	}
	t.Run("in the process whose first one failed", func(t *testing.T) {
		m, l, kill := lossyMachine(t, true)
		u, s := m.begin()
		require.True(t, s.OnTrial)
		*kill = unflushedRecord(m)
		require.ErrorIs(t, u.Confirm(t.Context()), errKilled)
		require.ErrorIs(t, u.Confirm(t.Context()), errKilled, "it still can't be flushed")
		*kill = nil
		require.NoError(t, u.Confirm(t.Context()))
		assert.Equal(t, phaseStable, m.cut(l).record().Phase)
	})
}

// What the record before names is not removed before its successor is durable.
func TestSweptWhenDurable(t *testing.T) {
	m, l, kill := lossyMachine(t, true)
	*kill = unflushedRecord(m)
	calls := 0
	first := *kill
	*kill = func(op, path string) bool { // the second record of a way back: the first is its intent
		if first(op, path) {
			calls++
		}
		return calls == 2
	}
	_, err := m.process().Rollback(t.Context(), RollbackOptions{})
	require.ErrorIs(t, err, errKilled)
	*kill = nil
	require.Equal(t, phaseStable, m.record().Phase)
	removed := false
	*kill = func(op, path string) bool { // right after the first removal
		dead := removed
		removed = removed || op == "remove" && filepath.Dir(path) == m.helper().target.slots
		return dead
	}
	_, err = m.apply("s3")
	require.ErrorIs(t, err, errKilled)
	require.True(t, removed)
	for _, survives := range l.survivors(0) { // the removal, and not the record, in one of them
		after := m.cutWith(l, survives)
		tg := after.helper().target
		r := after.record()
		for _, d := range r.slots() {
			assert.True(t, tg.intact(d), "the record names a program that is not there: %v; %v survive", d, survives)
		}
	}
}

// In a trial nothing that the record names goes away.
func TestTrialKeepsItsPrograms(t *testing.T) {
	m := trialMachine(t)
	for range 3 {
		require.True(t, m.pre().OnTrial)
		m.begin()
		tg, r := m.helper().target, m.record()
		for _, d := range r.slots() {
			assert.True(t, tg.intact(d), "%v", d)
		}
		back, err := tg.hash(tg.rollback, checksum.SHA256)
		require.NoError(t, err)
		assert.Equal(t, digests["s1"], back)
	}
}

// A switch that a power cut undid is made again only with a way back.
func TestRedoMakesAWayBack(t *testing.T) {
	m := trialMachine(t)
	tg := m.helper().target
	require.NoError(t, os.Remove(tg.rollback))
	require.NoError(t, tg.linkOver(tg.slot(digests["s1"]), m.path))
	require.True(t, m.pre().OnTrial)
	assert.Equal(t, "s2", m.at())
	back, err := tg.hash(tg.rollback, checksum.SHA256)
	require.NoError(t, err)
	assert.Equal(t, digests["s1"], back)
}

// A program that runs and works while the record still says that another one is on
// trial ends that.
func TestFallbackEndsATrial(t *testing.T) {
	m := trialMachine(t)
	tg := m.helper().target
	require.NoError(t, tg.linkOver(tg.slot(digests["s1"]), m.path))
	require.NoError(t, m.process().Confirm(t.Context()))
	r := m.record()
	assert.Equal(t, phaseStable, r.Phase)
	assert.Equal(t, digests["s1"], r.Current.SHA256)
	assert.Empty(t, r.Rejected)
}

// A trial is confirmed by the program that is on it, in time.
func TestNotItsTurnToConfirm(t *testing.T) {
	for _, tt := range []struct {
		name    string
		confirm func(m *machine, before *Updater) error
		want    error
	}{
		{"a process of the program before", func(m *machine, before *Updater) error { return before.Confirm(m.t.Context()) }, nil},
		{"after the deadline", func(m *machine, _ *Updater) error {
			u, _ := m.begin()
			_, err := u.target.expire(m.t.Context(), m.record().Trial.ID)
			require.NoError(m.t, err)
			return u.Confirm(m.t.Context())
		}, ErrExpired},
		{"from outside, after the deadline", func(m *machine, _ *Updater) error {
			h := m.helper()
			_, err := h.target.expire(m.t.Context(), m.record().Trial.ID)
			require.NoError(m.t, err)
			return h.Confirm(m.t.Context(), ConfirmOptions{Force: true})
		}, ErrExpired},
		{"on another trial", func(m *machine, _ *Updater) error {
			u, _ := m.begin()
			require.NoError(m.t, u.target.change(func(r *record) error { r.Trial.ID = "another"; return nil }))
			return u.Confirm(m.t.Context())
		}, ErrExpired},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t, installed(t, "s1"), system())
			before := m.process()
			_, err := m.apply("s2")
			require.NoError(t, err)
			require.ErrorIs(t, tt.confirm(m, before), tt.want)
			assert.Equal(t, phaseTrial, m.record().Phase)
		})
	}
}

// What an outage stopped is tried again, three times and not forever.
func TestTriedAgainThreeTimes(t *testing.T) {
	m := newMachine(t, installed(t, "s1"), system())
	tries := 0
	for range 10 {
		if _, err := m.apply("s2"); err != nil {
			require.ErrorIs(t, err, ErrRejected)
			break
		}
		tries++
		m.begin()
		m.clock.pass(m.cfg.Trial.Deadline + time.Second)
		c, err := m.helper().Tick(t.Context())
		require.NoError(t, err)
		require.True(t, c.Restart)
		require.Equal(t, "s1", m.at())
		u, _ := m.begin()
		m.clock.pass(m.cfg.Trial.Deadline + time.Second) // the outage goes on
		require.NoError(t, u.Confirm(t.Context()))
	}
	assert.Equal(t, 1+maxRetries, tries)
}

// The clock of the boot before says nothing about this one.
func TestTickAfterAReboot(t *testing.T) {
	m := trialMachine(t)
	m.pre()
	m.clock.boot, m.clock.mono = "boot2", m.clock.mono+3*time.Hour
	c, err := m.helper().Tick(t.Context())
	require.NoError(t, err)
	assert.False(t, c.Restart)
	assert.Equal(t, "s2", m.at())
	m.clock.pass(m.cfg.Trial.Deadline + time.Second)
	_, err = m.helper().Tick(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "s1", m.at())
}

// Orderly ends are refunded, as often as the trial has starts.
func TestRefundsEnd(t *testing.T) {
	m := trialMachine(t)
	starts := 0
	for range 10 {
		if !m.pre().OnTrial {
			break
		}
		starts++
		m.begin()
		require.NoError(t, m.helper().Post(t.Context(), Ending{Orderly: true}))
	}
	assert.Equal(t, 2*m.cfg.Trial.Starts, starts)
	assert.Equal(t, "s1", m.at())
}
