package selfupdate

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The reports B103 to B121 of docs/faults.md.

// A restart is no success: only Confirm ends "on trial".
func TestNotConfirmedByARestart(t *testing.T) {
	m := trialMachine(t)
	for n := 0; n <= 3; n++ {
		st, err := m.process().Status()
		require.NoError(t, err)
		assert.Equal(t, "trial", st.Phase)
		assert.Equal(t, n, st.Trial.Started)
		assert.False(t, st.Trial.Candidate.Confirmed)
		assert.Equal(t, outcomeOnTrial, st.Last.Outcome)
		res, err := m.apply("s2")
		require.NoError(t, err)
		assert.True(t, res.OnTrial, "what a controller would acknowledge")
		if n < 3 {
			m.begin()
		}
	}
	m.begin()
	st, err := m.process().Status()
	require.NoError(t, err)
	assert.Equal(t, "stable", st.Phase)
	assert.Equal(t, outcomeRolledBack, st.Last.Outcome)
	assert.Equal(t, digests["s1"], st.Current.SHA256)
}

// One 429, or a start that met it, is no verdict: the time and the starts are.
func TestOneFailedRoundIsNoVerdict(t *testing.T) {
	m := trialMachine(t)
	m.pre()
	m.begin()
	require.NoError(t, m.helper().Post(t.Context(), Ending{Detail: "exit status 1: 429 Too Many Requests"}))
	m.pre()
	u, s := m.begin()
	require.True(t, s.OnTrial)
	for range 19 { // rounds that fail, every 30 s: nobody calls Confirm
		m.clock.pass(30 * time.Second)
		c, err := m.helper().Tick(t.Context())
		require.NoError(t, err)
		assert.True(t, c.OnTrial)
		assert.False(t, c.Restart)
		assert.Equal(t, "s2", m.at())
	}
	assert.Equal(t, []string{"unhealthy: exit status 1: 429 Too Many Requests"}, m.record().Trial.Failures, "the reason is kept")
	require.NoError(t, u.Confirm(t.Context()))
	assert.Equal(t, "s2", m.at())
	assert.Empty(t, m.record().Rejected)
}

// TestWallClock: the same happens, whatever the wall clock does between two steps,
// and until Confirm the program before is there.
func TestWallClock(t *testing.T) {
	day := 24 * time.Hour
	history := func(t *testing.T, confirms bool, shift func(n int) time.Duration) (trace []string) {
		m, n := newMachine(t, installed(t, "s1"), system()), 0
		step := func(what string, got any) {
			trace = append(trace, fmt.Sprintf("%s: %+v, %s", what, got, m.at()))
			if r := m.record(); r.Phase == phaseTrial {
				assert.True(t, m.helper().target.intact(digests["s1"]), "the way back is kept until Confirm")
				assert.Equal(t, digests["s1"], content256(t, m.helper().target.rollback))
			}
			m.clock.wall = m.clock.wall.Add(shift(n))
			n++
		}
		_, err := m.apply("s2")
		step("apply", err)
		for range 4 {
			step("pre", m.pre())
			u, s := m.begin()
			step("begin", s)
			m.clock.pass(4 * time.Minute)
			c, err := m.helper().Tick(t.Context())
			require.NoError(t, err)
			step("tick", c)
			if confirms {
				step("confirm", u.Confirm(t.Context()))
			}
			m.clock.pass(7 * time.Minute)
			c, err = m.helper().Tick(t.Context())
			require.NoError(t, err)
			step("tick", c)
			require.NoError(t, m.helper().Restarted(t.Context()))
		}
		_, err = m.apply("s2")
		step("apply", err)
		return trace
	}
	for _, confirms := range []bool{true, false} {
		want := history(t, confirms, func(int) time.Duration { return 0 })
		assert.Contains(t, want[len(want)-2], map[bool]string{true: "s2", false: "s1"}[confirms])
		for name, shift := range map[string]func(n int) time.Duration{
			"a day ahead":           func(int) time.Duration { return day },
			"a day back":            func(int) time.Duration { return -day },
			"ten years ahead":       func(int) time.Duration { return 3650 * day },
			"ten years back":        func(int) time.Duration { return -3650 * day },
			"to and fro":            func(n int) time.Duration { return []time.Duration{3650 * day, -7300 * day}[n%2] },
			"back before the epoch": func(int) time.Duration { return -40 * 365 * day },
		} {
			t.Run(name, func(t *testing.T) { assert.Equal(t, want, history(t, confirms, shift)) })
		}
	}
}

// The way back needs nothing of the program that it leaves.
func TestRollbackOfADeletedCandidate(t *testing.T) {
	for _, slot := range []bool{false, true} {
		t.Run(fmt.Sprintf("its slot too: %v", slot), func(t *testing.T) {
			m := trialMachine(t)
			h := m.helper().target
			require.NoError(t, os.Remove(h.target))
			if slot {
				require.NoError(t, os.Remove(h.slot(digests["s2"])))
			}
			u, err := newUpdater(m.cfg, m.sys)
			require.NoError(t, err)
			res, err := u.Rollback(t.Context(), RollbackOptions{Reason: "it is gone"})
			require.NoError(t, err)
			assert.Equal(t, RolledBack, res.Outcome)
			assert.Equal(t, "s1", m.at())
			assert.False(t, m.pre().OnTrial)
			assert.Equal(t, digests["s2"], m.record().Rejected[0].SHA256)
		})
	}
}

// There and back and there again: what is on disk is verified, not believed.
func TestApplyRollbackClearApply(t *testing.T) {
	for _, trial := range []bool{true, false} {
		for _, damaged := range []bool{true, false} {
			t.Run(fmt.Sprintf("trial %v, damaged %v", trial, damaged), func(t *testing.T) {
				m := newMachine(t, installed(t, "s1"), system())
				if !trial {
					m.cfg.Trial = nil
				}
				_, err := m.apply("s2")
				require.NoError(t, err)
				_, err = m.process().Rollback(t.Context(), RollbackOptions{})
				require.NoError(t, err)
				if damaged { // somebody left another file in its place
					require.NoError(t, os.WriteFile(m.helper().target.slot(digests["s2"]), []byte("rot"), 0o755))
				}
				_, err = m.apply("s2")
				require.ErrorIs(t, err, ErrRejected)
				cleared, err := m.process().Clear(t.Context(), ClearOptions{Digest: digests["s2"]})
				require.NoError(t, err)
				require.Len(t, cleared, 1)
				res, err := m.apply("s2")
				require.NoError(t, err)
				assert.Equal(t, Updated, res.Outcome)
				assert.Equal(t, trial, res.OnTrial)
				assert.Equal(t, "s2", m.at())
				_, err = m.process().Rollback(t.Context(), RollbackOptions{})
				require.NoError(t, err)
				assert.Equal(t, "s1", m.at())
			})
		}
	}
}

// A version that was left is not installed again by the next rounds; another is.
func TestRejectedUntilAnotherVersion(t *testing.T) {
	m, rel := trialMachine(t), releaseOf(t, "s2", "s2")
	for range 3 {
		m.pre() // and it crashes
	}
	require.True(t, m.pre().RolledBack)
	for range 20 {
		u, s := m.begin()
		require.False(t, s.OnTrial)
		require.NoError(t, u.Confirm(t.Context()))
		_, err := u.Apply(t.Context(), rel.Release)
		require.ErrorIs(t, err, ErrRejected)
		assert.Equal(t, "s1", m.at())
		m.clock.pass(12 * time.Hour)
	}
	assert.Zero(t, rel.opened["app"])
	res, err := m.apply("s3")
	require.NoError(t, err)
	assert.True(t, res.OnTrial)
	assert.Equal(t, "s3", m.at())
	m.pre()
	u, _ := m.begin()
	require.NoError(t, u.Confirm(t.Context()))
	_, err = m.apply("s2")
	require.ErrorIs(t, err, ErrRejected, "still")
}

// A second update must not make the unconfirmed program the one to go back to.
func TestSecondUpdateDuringATrial(t *testing.T) {
	m, rel := trialMachine(t), releaseOf(t, "s3", "s3")
	for _, started := range []bool{false, true} {
		if started {
			m.begin()
		}
		_, err := m.process().Apply(t.Context(), rel.Release)
		require.ErrorIs(t, err, ErrOnTrial)
		assert.Equal(t, Temporary, ClassOf(err))
		bare := m.process()
		bare.cfg.Trial = nil
		_, err = bare.Apply(t.Context(), rel.Release)
		require.ErrorIs(t, err, ErrOnTrial, "also without a trial of its own")
	}
	assert.Zero(t, rel.opened["app"])
	_, err := m.process().Rollback(t.Context(), RollbackOptions{})
	require.NoError(t, err)
	assert.Equal(t, "s1", m.at())
}

// Exit codes and restarts are the program's: the library ends no process.
func TestLibraryNeverExits(t *testing.T) {
	files := 0
	for _, dir := range []string{".", "../checksum", "../source", "../internal"} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() && d.Name() == "testdata" {
				return fs.SkipDir
			}
			if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			files++
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			require.NoError(t, err)
			ast.Inspect(f, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok {
					if pkg, ok := sel.X.(*ast.Ident); ok {
						name := pkg.Name + "." + sel.Sel.Name
						assert.False(t, name == "os.Exit" || name == "syscall.Exit" || strings.HasPrefix(name, "log.Fatal"), "%s: %s", path, name)
					}
				}
				return true
			})
			return nil
		}))
	}
	assert.Greater(t, files, 40)
}

// A candidate that could never confirm itself is refused, where it would have to.
func TestCannotConfirm(t *testing.T) {
	without := buildModule(t, "example.com/app")
	for _, tt := range []struct {
		name   string
		data   []byte
		own    bool
		change func(*Config)
		want   error
	}{
		{"on trial", without, true, func(*Config) {}, ErrCannotConfirm},
		{"another program's trial", without, false, func(*Config) {}, ErrCannotConfirm},
		{"confirmed from outside", without, true, func(c *Config) { c.Trial.Outside = true }, nil},
		{"its updater restarts and confirms it", without, false, func(c *Config) { c.Restart = func(context.Context) error { return nil } }, nil},
		{"Restart says nothing about the own program", without, true, func(c *Config) { c.Restart = func(context.Context) error { return nil } }, ErrCannotConfirm},
		{"no trial", without, true, func(c *Config) { c.Trial = nil }, nil},
		{"it contains this module", contents["v2"], true, func(*Config) {}, nil},
		{"no build information to tell by", contents["s2"], true, func(*Config) {}, nil},
		{"no Go program", script("exit 0"), true, func(c *Config) { c.AllowAnyFormat = true }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t, installed(t, "s1"), system())
			tt.change(&m.cfg)
			u := m.process()
			if !tt.own {
				var err error
				u, err = newUpdater(m.cfg, m.sys)
				require.NoError(t, err)
			}
			rel := releaseWith("v2", tt.data)
			res, err := u.Apply(t.Context(), rel.Release)
			require.ErrorIs(t, err, tt.want)
			if tt.want != nil {
				assert.Equal(t, Refused, ClassOf(err))
				assert.Equal(t, "s1", m.at())
				clean(t, m.path, tt.name)
				return
			}
			assert.Equal(t, Updated, res.Outcome)
			assert.Equal(t, m.cfg.Trial != nil, res.OnTrial)
		})
	}
}
