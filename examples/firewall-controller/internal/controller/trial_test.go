//go:build unix

package controller

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/examples/firewall-controller/internal/firewall"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

const (
	soak     = 2 * time.Minute
	deadline = 10 * time.Minute
)

// newTrialScene is a scene in which new versions are on trial. The program is none
// that could call Begin, so the helper's Pre stands for its start, and what confirms
// it does so from outside.
func newTrialScene(t *testing.T) *scene {
	t.Helper()
	s := newScene(t)
	cfg := s.cfg
	cfg.Soak, cfg.Interval, cfg.Trials = soak, time.Minute, true
	cfg.Updater = func() (*selfupdate.Updater, error) {
		return selfupdate.New(selfupdate.Config{
			Target: s.target, Current: "v1", Asset: "firewall-controller", AllowAnyFormat: true,
			Trust:   selfupdate.UnsignedChecksum("a test"),
			Trial:   &selfupdate.Trial{Starts: 3, Deadline: deadline, Outside: true},
			Restart: func(context.Context) error { return nil },
		})
	}
	s.Controller = New(cfg)
	return s
}

// starts is the next process of the program at the target.
func (s *scene) starts(t *testing.T, version string) selfupdate.Start {
	t.Helper()
	h, err := selfupdate.NewHelper(s.target, nil)
	require.NoError(t, err)
	start, err := h.Pre(t.Context())
	require.NoError(t, err)
	cfg := s.cfg
	cfg.Version, cfg.Start = version, start
	s.Controller = New(cfg)
	s.hello()
	return start
}

// downloads is how often a program was asked for.
func (s *server) downloads() int { return s.opened["firewall-controller"] }

func (s *scene) phase(t *testing.T) string {
	t.Helper()
	st, err := selfupdate.ReadStatus(s.target, nil)
	require.NoError(t, err)
	return st.Phase
}

// updates brings v2 to the target and starts it.
func (s *scene) updates(t *testing.T) {
	t.Helper()
	s.store.set(s.want("v2", 1), nil)
	require.True(t, s.reconcile(t.Context()))
	require.True(t, s.starts(t, "v2").OnTrial)
	require.Equal(t, "two", s.installed(t))
}

func TestTrialConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTrialScene(t)
		s.updates(t)
		require.False(t, s.reconcile(t.Context()))
		st := s.store.last()
		require.NotNil(t, st.Trial)
		assert.Equal(t, "1 of 3", st.Trial.Starts)
		assert.Contains(t, st.Trial.Rollback, " --from sha256:", "typed too late it goes one version further without")
		assert.Equal(t, "v2", st.ActualVersion)
		assert.Equal(t, "v1", st.LastVersion, "what a roll back brings")
		assert.Equal(t, unsure, s.pace(), "in a hurry")
		time.Sleep(soak - time.Second)
		require.False(t, s.reconcile(t.Context()))
		assert.Equal(t, "trial", s.phase(t), "not yet")
		time.Sleep(time.Second)
		require.False(t, s.reconcile(t.Context()))
		assert.Equal(t, "stable", s.phase(t))
		assert.Nil(t, s.store.last().Trial, "told with the same reconcile")
		assert.Equal(t, time.Minute, s.pace())
		require.False(t, s.reconcile(t.Context()))
		assert.Equal(t, []firewall.Reason{firewall.Updated, firewall.OnTrial, firewall.Confirmed}, s.store.reasons())
		assert.Contains(t, s.store.events[1].Message, "v2 is on trial: it has 10m0s to confirm itself; starts left after this one: 2")
	})
}

// One 429 between good reconciles neither ends a trial nor makes it longer.
func TestTrialOneBadReconcile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTrialScene(t)
		s.updates(t)
		require.False(t, s.reconcile(t.Context()))
		s.store.set(firewall.Spec{}, errors.New("429 Too Many Requests"))
		time.Sleep(soak / 2)
		require.False(t, s.reconcile(t.Context()))
		assert.Equal(t, "trial", s.phase(t))
		s.store.set(s.want("v2", 1), nil)
		time.Sleep(soak / 2)
		require.False(t, s.reconcile(t.Context()))
		assert.Equal(t, "stable", s.phase(t))
	})
}

// Whether the API can't be read or can't be written: no version confirms itself
// without it, and none leaves because of it before its time is over.
func TestTrialAPIDown(t *testing.T) {
	for _, tt := range []struct {
		name   string
		breaks func(s *scene)
		want   string
	}{
		{"not read", func(s *scene) { s.store.set(firewall.Spec{}, errors.New("connection refused")) }, "trial"},
		{"not written", func(s *scene) { s.store.statusErr = errors.New("connection refused") }, "trial"},
		{"nothing breaks", func(*scene) {}, "stable"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTrialScene(t)
				s.updates(t)
				tt.breaks(s)
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				defer cancel()
				assert.False(t, s.Run(ctx), "it goes on until somebody ends it")
				assert.Equal(t, tt.want, s.phase(t))
				assert.GreaterOrEqual(t, s.reconciles, 10)
				if tt.name == "not read" {
					assert.Contains(t, s.store.reasons(), firewall.SpecUnread)
				}
			})
		})
	}
}

// Events wait for an API that is down at the start.
func TestTrialEventsWait(t *testing.T) {
	s := newTrialScene(t)
	s.updates(t)
	s.store.emitErr = errors.New("connection refused")
	require.False(t, s.reconcile(t.Context()))
	s.store.emitErr = nil
	for range 2 {
		require.False(t, s.reconcile(t.Context()))
	}
	assert.Equal(t, []firewall.Reason{firewall.Updated, firewall.OnTrial}, s.store.reasons())
}

// The whole way of a version that never works: back, tried once more from the disk,
// back and rejected, and allowed again by the retry annotation, once.
func TestTrialRejected(t *testing.T) {
	s := newTrialScene(t)
	s.cfg.Soak = 0
	fails := func() {
		for range 3 {
			require.True(t, s.starts(t, "v2").OnTrial)
		}
		start := s.starts(t, "v1")
		require.True(t, start.RolledBack, "it has no start left")
		require.Equal(t, "one", s.installed(t))
	}
	s.store.set(s.want("v2", 1), nil)
	require.True(t, s.reconcile(t.Context()))
	downloaded := s.server.requests
	fails()
	require.False(t, s.reconcile(t.Context()))
	assert.Equal(t, []firewall.Reason{firewall.Updated, firewall.RolledBack, firewall.UpdateHeldBack}, s.store.reasons())
	assert.Contains(t, s.store.events[1].Message, "v1 is back from v2: unhealthy, pending (3 starts, not confirmed: ")
	assert.Equal(t, "pending", s.store.last().Rejected[0].Verdict)
	require.False(t, s.reconcile(t.Context()), "here v1 proves that it is well itself")
	require.True(t, s.reconcile(t.Context()), "so v2 is tried again")
	fails()
	for range 4 {
		require.False(t, s.reconcile(t.Context()))
	}
	assert.Equal(t, firewall.UpdateRejected, s.store.events[len(s.store.events)-1].Reason)
	assert.Equal(t, "guilty", s.store.last().Rejected[0].Verdict)
	assert.Equal(t, "v2", s.store.last().NextVersion)
	assert.Equal(t, downloaded-1, s.server.downloads(), "the program itself, once")

	spec := s.want("v2", 1)
	spec.Retry = "2026-11-30, the API was at fault"
	s.store.set(spec, nil)
	require.True(t, s.reconcile(t.Context()))
	assert.Contains(t, s.store.reasons(), firewall.Allowed)
	fails()
	for range 2 {
		require.False(t, s.reconcile(t.Context()))
	}
	assert.Len(t, s.store.last().Rejected, 1, "the same token does nothing any more")
}

// Another version has to wait for the end of the trial, without an event.
func TestTrialOtherVersionWaits(t *testing.T) {
	s := newTrialScene(t)
	s.updates(t)
	s.store.set(s.want("v3", 1), nil)
	require.False(t, s.reconcile(t.Context()))
	assert.Equal(t, "v3 has to wait for the end of the trial", s.store.last().Message)
	assert.Equal(t, "v3", s.store.last().NextVersion)
	assert.Equal(t, []firewall.Reason{firewall.Updated, firewall.OnTrial}, s.store.reasons())
}

func TestReconcileHeldBack(t *testing.T) {
	s := newTrialScene(t)
	s.store.set(s.want("v2", 1), nil)
	s.server.sums["v2"] = strings.Repeat("a", 64)
	for range 5 {
		require.False(t, s.reconcile(t.Context()))
	}
	assert.Equal(t, []firewall.Reason{firewall.UpdateRefused, firewall.UpdateHeldBack}, s.store.reasons())
	assert.Equal(t, 2, s.server.downloads(), "the second try is free, the third has to wait")
}

// The loop itself says that it is alive, also between two reconciles, and nobody
// says so in its place when it hangs.
func TestRunAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTrialScene(t)
		s.store.set(firewall.Spec{}, nil)
		run := func(d time.Duration) (calls int) {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			s.cfg.Interval, s.cfg.AliveEvery = 3*time.Minute, 10*time.Second
			s.cfg.Alive = func() {
				if ctx.Err() == nil { // what hung comes back at the end
					calls++
				}
			}
			s.Run(ctx)
			return calls
		}
		assert.GreaterOrEqual(t, run(time.Minute), 6)
		s.store.hangs = true
		assert.Equal(t, 1, run(time.Minute), "before it hung")
	})
}

// A program file that is gone, and a record that was never written, are no reason
// not to start.
func TestHelloWithoutProgram(t *testing.T) {
	s := newTrialScene(t)
	var log bytes.Buffer
	s.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	require.NoError(t, os.Remove(s.target))
	s.hello()
	assert.Contains(t, log.String(), "starting")
}
