package selfupdate

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// updated returns a target that went from v1 to v2.
func updated(t *testing.T) (path string, u *Updater, rel *release) {
	t.Helper()
	path = installed(t, "v1")
	u = updater(t, path)
	rel = releaseOf(t, "v2", "v2")
	_, err := u.Apply(t.Context(), rel.Release)
	require.NoError(t, err)
	return path, u, rel
}

func TestRollbackRejects(t *testing.T) {
	path, u, rel := updated(t)
	res, err := u.Rollback(t.Context(), RollbackOptions{Reason: "eats packets"})
	require.NoError(t, err)
	assert.Equal(t, RolledBack, res.Outcome)
	assert.Equal(t, "v2", res.Previous)
	assert.Equal(t, "v1", run(t, path))

	for range 3 {
		_, err = u.Apply(t.Context(), rel.Release)
		require.ErrorIs(t, err, ErrRejected)
		assert.Contains(t, err.Error(), "eats packets")
		assert.Equal(t, Refused, ClassOf(err))
	}
	assert.Equal(t, 1, rel.opened["app"], "not downloaded again")

	// Under another name it is the same digest.
	_, err = u.Apply(t.Context(), releaseOf(t, "v2.0.1", "v2").Release)
	require.ErrorIs(t, err, ErrRejected)
	// Pinned or not.
	pinned := updater(t, path, func(c *Config) { c.Trust = Pinned(content256(t, programs["v2"])) })
	_, err = pinned.Apply(t.Context(), rel.Release)
	require.ErrorIs(t, err, ErrRejected)
	// Another digest may be installed meanwhile, and does not lift the rejection.
	_, err = u.Apply(t.Context(), releaseOf(t, "v3", "v3").Release)
	require.NoError(t, err)
	_, err = u.Apply(t.Context(), rel.Release)
	require.ErrorIs(t, err, ErrRejected)

	cleared, err := u.Clear(t.Context(), ClearOptions{Digest: content256(t, programs["v2"])})
	require.NoError(t, err)
	require.Len(t, cleared, 1)
	assert.Equal(t, "v2", cleared[0].Version)
	_, err = u.Apply(t.Context(), rel.Release)
	require.NoError(t, err)
	assert.Equal(t, "v2", run(t, path))
}

func TestRollbackKeepAllowed(t *testing.T) {
	path, u, rel := updated(t)
	_, err := u.Rollback(t.Context(), RollbackOptions{KeepAllowed: true})
	require.NoError(t, err)
	assert.Equal(t, "v1", run(t, path))
	_, err = u.Apply(t.Context(), rel.Release)
	require.NoError(t, err)
	assert.Equal(t, "v2", run(t, path))
}

func TestClearArguments(t *testing.T) {
	_, u, _ := updated(t)
	_, err := u.Clear(t.Context(), ClearOptions{})
	require.Error(t, err)
	_, err = u.Clear(t.Context(), ClearOptions{All: true, Digest: content256(t, programs["v1"])})
	require.Error(t, err)
	cleared, err := u.Clear(t.Context(), ClearOptions{All: true})
	require.NoError(t, err)
	assert.Empty(t, cleared)
	cleared, err = Clear(t.Context(), ClearOptions{Target: installed(t, "v1"), All: true})
	require.NoError(t, err, "no record is no rejection")
	assert.Empty(t, cleared)
}

// The bad program is not needed for the way back from it.
func TestRollbackWithoutTheProgram(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"deleted":   os.Remove,
		"empty":     func(p string) error { return replaceBy(p, nil) },
		"garbage":   func(p string) error { return replaceBy(p, []byte("garbage")) },
		"truncated": func(p string) error { return os.Truncate(p, 100) },
	} {
		t.Run(name, func(t *testing.T) {
			path, u, rel := updated(t)
			require.NoError(t, spoil(path))
			_, err := u.Rollback(t.Context(), RollbackOptions{})
			require.NoError(t, err)
			if name == "deleted" {
				assert.Equal(t, "v1", run(t, path))
				_, err = u.Apply(t.Context(), rel.Release)
				require.ErrorIs(t, err, ErrRejected)
			} else { // what somebody put there by hand was adopted, and left again
				assert.Contains(t, []string{"v1", "v2"}, run(t, path))
			}
		})
	}
}

func replaceBy(path string, data []byte) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o755)
}

// A slot that was changed on disk is never put at the target.
func TestRollbackDamagedSlot(t *testing.T) {
	path, u, _ := updated(t)
	slot := filepath.Join(filepath.Dir(path), ".app.d/slots", content256(t, programs["v1"]).Hex())

	// Slot and pre-armed link are one file: both are bad.
	require.NoError(t, os.WriteFile(slot, []byte("rot"), 0o755))
	_, err := u.Rollback(t.Context(), RollbackOptions{})
	require.ErrorIs(t, err, ErrNoPrevious)
	require.ErrorIs(t, err, ErrDamaged)
	assert.Equal(t, "v2", run(t, path), "a program that runs is not exchanged for one that doesn't")

	// With an older good program behind it, that one serves.
	path, u, _ = updated(t)
	_, err = u.Apply(t.Context(), releaseOf(t, "v3", "v3").Release)
	require.NoError(t, err)
	slot = filepath.Join(filepath.Dir(path), ".app.d/slots", content256(t, programs["v2"]).Hex())
	require.NoError(t, os.WriteFile(slot, []byte("rot"), 0o755))
	_, err = u.Rollback(t.Context(), RollbackOptions{})
	require.NoError(t, err)
	assert.Equal(t, "v1", run(t, path))

	// Where slot and link are two files, the good one of the two serves.
	path, u, _ = updated(t)
	slot = filepath.Join(filepath.Dir(path), ".app.d/slots", content256(t, programs["v1"]).Hex())
	link := filepath.Join(filepath.Dir(path), ".app.rollback")
	require.NoError(t, os.Remove(link))
	copyProgram(t, "v1", link)
	require.NoError(t, os.WriteFile(slot, []byte("rot"), 0o755))
	_, err = u.Rollback(t.Context(), RollbackOptions{})
	require.NoError(t, err)
	assert.Equal(t, "v1", run(t, path))
}

func TestOlderProgramsAreForgotten(t *testing.T) {
	path := installed(t, "v1")
	u := updater(t, path)
	for i, p := range []string{"v2", "v3", "v1", "v2", "v3"} {
		_, err := u.Apply(t.Context(), releaseOf(t, p+strings.Repeat("+", i), p).Release)
		require.NoError(t, err)
	}
	names, err := os.ReadDir(filepath.Join(filepath.Dir(path), ".app.d/slots"))
	require.NoError(t, err)
	assert.Len(t, names, 1+maxGood)
}

func TestReplacedByHand(t *testing.T) {
	path, u, _ := updated(t)
	require.NoError(t, replaceBy(path, contents["v3"])) // cp over a program that doesn't run
	st, err := u.Status()
	require.NoError(t, err)
	assert.True(t, st.Changed)
	assert.Equal(t, content256(t, programs["v3"]), st.Current.SHA256)

	// It is the operator's choice: kept as current, and what was there before is the way back.
	rel := releaseOf(t, "v3", "v3")
	res, err := u.Apply(t.Context(), rel.Release)
	require.NoError(t, err)
	assert.Equal(t, UpToDate, res.Outcome)
	_, err = u.Rollback(t.Context(), RollbackOptions{})
	require.NoError(t, err)
	assert.Equal(t, "v2", run(t, path))
}

// Written in place, the slot of the program changes with it and is no good any more.
func TestOverwrittenByHand(t *testing.T) {
	path, u, _ := updated(t)
	require.NoError(t, os.WriteFile(path, contents["v3"], 0o755))
	require.NoError(t, os.Chtimes(path, time.Now(), time.Now().Add(time.Second)))
	_, err := u.Rollback(t.Context(), RollbackOptions{})
	require.NoError(t, err)
	assert.Equal(t, "v1", run(t, path))
}

func TestReplacedByHandDuringADownload(t *testing.T) {
	path, u, _ := updated(t)
	rel := releaseOf(t, "v3", "v3")
	open := rel.Assets[0].Open
	rel.Assets[0].Open = func(ctx context.Context, p Position) (Body, error) {
		require.NoError(t, replaceBy(path, contents["v1"]))
		return open(ctx, p)
	}
	_, err := u.Apply(t.Context(), rel.Release)
	require.ErrorIs(t, err, ErrChanged)
	assert.Equal(t, "v1", run(t, path))
	for _, p := range listing(t, filepath.Dir(path)) {
		assert.NotContains(t, p, ".dl-")
	}
}

func TestLeftoversOfAKilledRun(t *testing.T) {
	path, u, _ := updated(t)
	state := filepath.Join(filepath.Dir(path), ".app.d")
	for _, p := range []string{state + "/slots/.dl-abc", state + "/.tmp-abc", filepath.Dir(path) + "/" + probePrefix + "abc", state + "/slots/" + strings.Repeat("ef", 32)} {
		require.NoError(t, os.WriteFile(p, []byte("left"), 0o600))
	}
	mine := filepath.Join(filepath.Dir(path), "somebody-elses")
	require.NoError(t, os.WriteFile(mine, nil, 0o600))
	_, err := u.Apply(t.Context(), releaseOf(t, "v3", "v3").Release)
	require.NoError(t, err)
	for _, p := range listing(t, filepath.Dir(path)) {
		assert.NotContains(t, p, "abc")
		assert.NotContains(t, p, strings.Repeat("ef", 32))
	}
	assert.FileExists(t, mine)
}

// An older good program that is still on disk needs no download.
func TestBackToAGoodProgram(t *testing.T) {
	path, u, _ := updated(t)
	require.NoError(t, os.Chmod(path, 0o700))
	rel := releaseOf(t, "v1", "v1")
	res, err := u.Apply(t.Context(), rel.Release)
	require.NoError(t, err)
	assert.Equal(t, Updated, res.Outcome)
	assert.Zero(t, rel.opened["app"])
	assert.Equal(t, "v1", run(t, path))
	fi, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), fi.Mode(), "with the mode of today")
}

func TestWriteStatus(t *testing.T) {
	path, u, _ := updated(t)
	_, err := u.Rollback(t.Context(), RollbackOptions{Reason: "bad: \"very\"\nbad"})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "status.yaml")
	require.NoError(t, u.WriteStatus(file, Reconcile{At: time.Unix(0, 0), Next: "v2", Err: ErrRejected, Extra: map[string]string{"rules": "3", "odd key": "x"}}))
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	d := content256(t, programs["v2"])
	for _, line := range []string{
		`nextversion: "v2"`, `lastreconcile: "1970-01-01T00:00:00Z"`, `error: "this digest was rejected here"`, `protection: "no-helper"`,
		`reason: "bad: \"very\"\nbad"`, `clear: "selfupdate-guard clear --target ` + path + ` ` + d.String() + `"`, `rules: "3"`, `"odd key": "x"`,
	} {
		assert.Contains(t, string(got), line)
	}
	fi, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o644), fi.Mode())
	require.Error(t, u.WriteStatus(filepath.Join(t.TempDir(), "none", "status.yaml"), Reconcile{}))
}

// A command that the status shows is one that can be typed.
func TestWriteStatusCommands(t *testing.T) {
	st := Status{Target: "/opt/it's here/a$b", Rejected: []Rejection{{SHA256: content256(t, programs["v2"])}}, Trial: &TrialStatus{}}
	var lines struct {
		Clear, Rollback string
	}
	for line := range strings.Lines(string(st.yaml(Reconcile{}))) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "clear":
			require.NoError(t, json.Unmarshal([]byte(value), &lines.Clear))
		case "rollback":
			require.NoError(t, json.Unmarshal([]byte(value), &lines.Rollback))
		}
	}
	for _, command := range []string{lines.Clear, lines.Rollback} {
		out, err := exec.Command("sh", "-c", "set -- "+command+`; printf %s "$4"`).Output()
		require.NoError(t, err, command)
		assert.Equal(t, st.Target, string(out), command)
	}
}

// A way back that returned an error does not happen later by itself.
func TestRollbackThatFails(t *testing.T) {
	path, _, rel := updated(t)
	sys := system()
	sys.commit = func(string, string) error { return os.ErrPermission }
	u, err := newUpdater(Config{Target: path, Trust: UnsignedChecksum("test")}, sys)
	require.NoError(t, err)
	_, err = u.Rollback(t.Context(), RollbackOptions{})
	require.ErrorIs(t, err, os.ErrPermission)
	assert.Equal(t, Local, ClassOf(err))
	st, err := u.Status()
	require.NoError(t, err)
	assert.False(t, st.Unfinished)
	assert.Empty(t, st.Rejected)
	res, err := updater(t, path).Apply(t.Context(), rel.Release)
	require.NoError(t, err)
	assert.Equal(t, UpToDate, res.Outcome)
	assert.Equal(t, "v2", run(t, path))
}

// interruptRollback ends a way back right before its rename.
func interruptRollback(t *testing.T, path string) {
	t.Helper()
	sys := hooked(system(), func(op, _ string) error {
		if op == "commit" {
			panic("killed")
		}
		return nil
	})
	u, err := newUpdater(Config{Target: path, Trust: UnsignedChecksum("test")}, sys)
	require.NoError(t, err)
	assert.Panics(t, func() { _, _ = u.Rollback(t.Context(), RollbackOptions{}) })
}

// An interrupted way back whose program rotted meanwhile must not stop updates for ever.
func TestInterruptedRollbackToADamagedProgram(t *testing.T) {
	path, _, rel := updated(t)
	interruptRollback(t, path)
	st, err := ReadStatus(path, nil)
	require.NoError(t, err)
	require.True(t, st.Unfinished)
	slot := filepath.Join(filepath.Dir(path), ".app.d/slots", digests["v1"].Hex())
	require.NoError(t, os.WriteFile(slot, []byte("rot"), 0o755))

	res, err := updater(t, path).Apply(t.Context(), rel.Release)
	require.NoError(t, err)
	assert.Equal(t, UpToDate, res.Outcome)
	_, err = updater(t, path).Apply(t.Context(), releaseOf(t, "v3", "v3").Release)
	require.NoError(t, err)
	assert.Equal(t, "v3", run(t, path))
}

// The record is gone or damaged: what lies on the disk still leads back.
func TestRollbackWithoutTheRecord(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(record string) error
		back  []string // what rollback leads to, in turn
	}{
		{"nothing wrong", func(string) error { return nil }, []string{"v2", "v1"}},
		{"damaged", func(p string) error { return os.WriteFile(p, []byte("X"), 0o600) }, []string{"v2", "v1"}},
		{"empty", func(p string) error { return os.WriteFile(p, nil, 0o600) }, []string{"v2", "v1"}},
		{"removed", os.Remove, []string{"v2"}}, // an unknown slot may be one that never ran
	} {
		for _, first := range []string{"rollback", "apply"} {
			t.Run(tt.name+", then "+first, func(t *testing.T) {
				path, u, _ := updated(t)
				rel := releaseOf(t, "v3", "v3")
				_, err := u.Apply(t.Context(), rel.Release)
				require.NoError(t, err)
				require.NoError(t, tt.spoil(filepath.Join(filepath.Dir(path), ".app.d/state.json")))
				st, err := u.Status()
				require.NoError(t, err)
				assert.Equal(t, strings.HasPrefix(tt.name, "damaged") || tt.name == "empty", st.Damaged)
				assert.Len(t, st.Previous, len(tt.back))
				if first == "apply" {
					_, err = u.Apply(t.Context(), rel.Release)
					require.NoError(t, err)
				}
				for _, want := range tt.back {
					_, err = u.Rollback(t.Context(), RollbackOptions{})
					require.NoError(t, err)
					assert.Equal(t, want, run(t, path))
				}
				_, err = u.Rollback(t.Context(), RollbackOptions{})
				require.ErrorIs(t, err, ErrNoPrevious)
			})
		}
	}
}

// Whoever goes back by mv does not want to be led to what he left.
func TestBackByHand(t *testing.T) {
	path, u, _ := updated(t)
	_, err := u.Apply(t.Context(), releaseOf(t, "v3", "v3").Release)
	require.NoError(t, err)
	require.NoError(t, os.Rename(filepath.Join(filepath.Dir(path), ".app.rollback"), path))
	assert.Equal(t, "v2", run(t, path))
	_, err = u.Rollback(t.Context(), RollbackOptions{})
	require.NoError(t, err)
	assert.Equal(t, "v1", run(t, path))
}
