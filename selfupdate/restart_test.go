package selfupdate

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// service is another program under some supervisor, which its updater restarts.
type service struct {
	*machine
	running string // what runs; "" is nothing
	calls   int
	fails   func(version string) error
}

func newService(t *testing.T, tr *Trial) *service {
	t.Helper()
	s := &service{machine: newMachine(t, installed(t, "s1"), system()), running: "s1"}
	s.cfg.Trial = tr
	s.cfg.Restart = func(context.Context) error {
		s.calls++
		version := s.at()
		if s.fails != nil {
			if err := s.fails(version); err != nil {
				s.running = ""
				return err
			}
		}
		s.running = version
		return nil
	}
	return s
}

// updater is another process of the program that updates the service.
func (s *service) updater() *Updater {
	s.t.Helper()
	u, err := newUpdater(s.cfg, s.sys)
	require.NoError(s.t, err)
	require.False(s.t, u.own)
	return u
}

func (s *service) apply(version string) (Result, error) {
	s.t.Helper()
	return s.updater().Apply(s.t.Context(), releaseOf(s.t, version, version).Release)
}

var errDown = errors.New("unit is masked")

func failsTimes(n int) func(string) error {
	return func(string) error {
		if n--; n >= 0 {
			return errDown
		}
		return nil
	}
}

// The service is down: Restart means "make sure that it runs".
func TestRestartOfAServiceThatIsDown(t *testing.T) {
	for name, tr := range map[string]*Trial{"without a trial": nil, "on trial": {}} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, tr)
			s.running = ""
			res, err := s.apply("s2")
			require.NoError(t, err)
			assert.Equal(t, Updated, res.Outcome)
			assert.Equal(t, tr != nil, res.OnTrial)
			assert.False(t, res.RestartNeeded, "of this process")
			assert.Equal(t, "s2", s.running)
			for range 3 {
				res, err = s.apply("s2")
				require.NoError(t, err)
				assert.Equal(t, UpToDate, res.Outcome)
			}
			assert.Equal(t, 1, s.calls, "and then left in peace")
			assert.False(t, s.record().PendingRestart)
		})
	}
}

func TestRestartFailsOnce(t *testing.T) {
	s := newService(t, nil)
	s.fails = failsTimes(1)
	_, err := s.apply("s2")
	require.ErrorIs(t, err, errDown)
	var e *Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, "restart", e.Step)
	assert.Equal(t, Replaced, e.State)
	st, err := s.updater().Status()
	require.NoError(t, err)
	assert.True(t, st.PendingRestart)
	res, err := s.apply("s2")
	require.NoError(t, err)
	assert.Equal(t, UpToDate, res.Outcome)
	assert.Equal(t, "s2", s.running)
	_, err = s.apply("s2")
	require.NoError(t, err)
	assert.Equal(t, 2, s.calls)
}

// A version that can't be restarted is left again, and its digest waits for a
// sign of life of the one before. After two such failures it is guilty.
func TestRestartFailsOnTrial(t *testing.T) {
	s := newService(t, &Trial{})
	s.fails = func(version string) error {
		if version == "s2" {
			return errDown
		}
		return nil
	}
	for try := 1; try <= 2; try++ {
		res, err := s.apply("s2")
		require.ErrorIs(t, err, errDown)
		var e *Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, Restored, e.State)
		assert.Equal(t, RolledBack, res.Outcome)
		assert.Equal(t, "s1", s.at())
		assert.Equal(t, "s1", s.running)
		assert.Equal(t, 2*try, s.calls)
		r := s.record()
		assert.False(t, r.PendingRestart)
		require.Len(t, r.Rejected, 1)
		assert.Equal(t, verdictPending, r.Rejected[0].Verdict)
		assert.Equal(t, classUnhealthy, r.Rejected[0].Class)
		assert.Contains(t, r.Rejected[0].Reason, "could not be restarted: restart")
		_, err = s.apply("s2")
		require.ErrorIs(t, err, ErrRejected)
		assert.Equal(t, 2*try, s.calls, "rejected: nothing to restart")
		require.NoError(t, s.updater().Confirm(t.Context()))
	}
	assert.Equal(t, verdictGuilty, s.record().Rejected[0].Verdict)
}

// Neither can be restarted: what is left to do is done as soon as it can be.
func TestRestartFailsForBoth(t *testing.T) {
	for _, next := range []string{"s1", "s2"} {
		s := newService(t, &Trial{})
		s.fails = failsTimes(3)
		_, err := s.apply("s2")
		require.ErrorIs(t, err, errDown)
		assert.Equal(t, 2, s.calls)
		assert.Equal(t, "s1", s.at())
		assert.True(t, s.record().PendingRestart)
		want := func(err error) {
			if next == "s2" {
				require.ErrorIs(t, err, ErrRejected)
			}
		}
		_, err = s.apply(next)
		require.ErrorIs(t, err, errDown)
		want(err)
		assert.Equal(t, 3, s.calls)
		_, err = s.apply(next)
		want(err)
		require.NotErrorIs(t, err, errDown)
		assert.Equal(t, "s1", s.running)
		assert.False(t, s.record().PendingRestart)
		_, err = s.apply(next)
		want(err)
		assert.Equal(t, 4, s.calls)
	}
}

// Killed between the switch and the hook, or before the hook's end was recorded.
func TestRestartAfterAKill(t *testing.T) {
	for _, tt := range []struct {
		name string
		tr   *Trial
		next string
		want error
	}{
		{"up to date", nil, "s2", nil},
		{"up to date, on trial", &Trial{}, "s2", nil},
		{"another one is on trial", &Trial{}, "s3", ErrOnTrial},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newService(t, tt.tr)
			_, err := s.updater().apply(t.Context(), releaseOf(t, "s2", "s2").Release)
			require.NoError(t, err)
			require.Zero(t, s.calls)
			res, err := s.apply(tt.next)
			require.ErrorIs(t, err, tt.want)
			assert.Equal(t, "s2", s.running)
			assert.Equal(t, tt.tr != nil && tt.want == nil, res.OnTrial)
			_, err = s.apply(tt.next)
			require.ErrorIs(t, err, tt.want)
			assert.Equal(t, 1, s.calls)
		})
	}
	t.Run("a service that was started meanwhile", func(t *testing.T) {
		s := newService(t, &Trial{})
		_, err := s.updater().apply(t.Context(), releaseOf(t, "s2", "s2").Release)
		require.NoError(t, err)
		require.True(t, s.pre().OnTrial)
		_, err = s.apply("s2")
		require.NoError(t, err)
		assert.Zero(t, s.calls)
	})
}

// That a restart can't be recorded is no failure of the program: it is asked for again.
func TestRestartOnAFullDisk(t *testing.T) {
	s := newService(t, &Trial{})
	full, sys := false, s.sys
	s.sys = hooked(sys, func(op, path string) error {
		if full && op == "create" {
			return syscall.ENOSPC
		}
		return nil
	})
	s.fails = func(string) error { full = true; return nil }
	res, err := s.apply("s2")
	require.NoError(t, err)
	assert.Equal(t, Updated, res.Outcome)
	assert.Equal(t, "s2", s.at())
	assert.True(t, s.record().PendingRestart)
	full, s.fails = false, nil
	_, err = s.apply("s2")
	require.NoError(t, err)
	assert.Equal(t, 2, s.calls)
	assert.False(t, s.record().PendingRestart)
}

// The caller is told to stop while it restarts the service: that is no verdict.
func TestRestartCancelled(t *testing.T) {
	s := newService(t, &Trial{})
	ctx, cancel := context.WithCancel(t.Context())
	s.fails = func(string) error { cancel(); return ctx.Err() }
	_, err := s.updater().Apply(ctx, releaseOf(t, "s2", "s2").Release)
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, "s2", s.at())
	assert.Equal(t, 1, s.calls)
	s.fails = nil
	_, err = s.apply("s2")
	require.NoError(t, err)
	assert.Equal(t, "s2", s.running)
	assert.Empty(t, s.record().Rejected)
}

func TestRestartAfterRollback(t *testing.T) {
	s := newService(t, nil)
	_, err := s.apply("s2")
	require.NoError(t, err)
	s.fails = failsTimes(1)
	_, err = s.updater().Rollback(t.Context(), RollbackOptions{})
	require.ErrorIs(t, err, errDown)
	assert.Equal(t, "s1", s.at())
	_, err = s.apply("s2")
	require.ErrorIs(t, err, ErrRejected)
	assert.Equal(t, "s1", s.running)
}

// The updater of another program confirms it, or whoever runs the helper does.
func TestConfirmFromOutside(t *testing.T) {
	for name, confirm := range map[string]func(s *service) error{
		"the updater":                       func(s *service) error { return s.updater().Confirm(s.t.Context()) },
		"the helper":                        func(s *service) error { return s.helper().Confirm(s.t.Context(), ConfirmOptions{Force: true}) },
		"an updater that restarts nothing":  func(s *service) error { s.cfg.Restart = nil; return s.updater().Confirm(s.t.Context()) },
		"not: another program without both": nil,
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, &Trial{Outside: true})
			_, err := s.apply("s2")
			require.NoError(t, err)
			require.True(t, s.pre().OnTrial)
			if confirm == nil {
				s.cfg.Restart, s.cfg.Trial = nil, &Trial{}
				require.NoError(t, s.updater().Confirm(t.Context()))
				assert.Equal(t, phaseTrial, s.record().Phase)
				return
			}
			require.NoError(t, confirm(s))
			r := s.record()
			assert.Equal(t, phaseStable, r.Phase)
			assert.Equal(t, "s2", r.Current.Version)
			assert.True(t, r.Current.Confirmed)
		})
	}
}

// A program that is confirmed from outside need not call Begin: that it didn't is
// no crash.
func TestRestartedProgramNeedNotBegin(t *testing.T) {
	s := newService(t, &Trial{Starts: 1})
	_, err := s.apply("s2")
	require.NoError(t, err)
	require.True(t, s.pre().OnTrial)
	s.clock.pass(time.Minute)
	require.True(t, s.pre().RolledBack)
	r := s.record()
	require.Len(t, r.Rejected, 1)
	assert.Equal(t, classUnhealthy, r.Rejected[0].Class)
	assert.Equal(t, verdictPending, r.Rejected[0].Verdict)
}

// The own program is restarted by its own end: Config.Restart is for another one.
func TestRestartNotOfTheOwnProgram(t *testing.T) {
	called := false
	restart := func(context.Context) error { called = true; return nil }
	u, err := New(Config{Trust: UnsignedChecksum("test"), Restart: restart})
	require.NoError(t, err)
	require.True(t, u.own)
	assert.False(t, u.target.restarts)

	m := newMachine(t, installed(t, "s1"), system())
	m.cfg.Restart = restart
	u = m.process()
	u.target.restarts = false
	res, err := u.Apply(t.Context(), releaseOf(t, "s2", "s2").Release)
	require.NoError(t, err)
	assert.True(t, res.RestartNeeded)
	_, err = u.Rollback(t.Context(), RollbackOptions{})
	require.NoError(t, err)
	assert.False(t, called)
	assert.False(t, m.record().PendingRestart)
}
