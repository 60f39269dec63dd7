//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var demoBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "demo-test-")
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "demo")
	_, err = output(context.Background(), ".", nil, "go", "build", "-o", file, ".")
	return file, err
})

func TestMain(m *testing.M) {
	code := m.Run()
	if file, err := demoBinary(); err == nil {
		_ = os.RemoveAll(filepath.Dir(file))
	}
	os.Exit(code)
}

// command is the demo with a temporary directory of its own.
func command(t *testing.T, args ...string) (cmd *exec.Cmd, tmp string) {
	t.Helper()
	file, err := demoBinary()
	require.NoError(t, err)
	tmp = t.TempDir()
	cmd = exec.CommandContext(t.Context(), file, args...)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	return cmd, tmp
}

var pidLine = regexp.MustCompile(`\bpid (\d+)`)

// leavesNothing checks for files and processes of a demo that is over.
func leavesNothing(t *testing.T, tmp, out string) {
	t.Helper()
	entries, err := os.ReadDir(tmp)
	require.NoError(t, err)
	for _, e := range entries {
		assert.NotContains(t, e.Name(), "selfreconcile-demo-", "left behind")
	}
	for _, m := range pidLine.FindAllStringSubmatch(out, -1) {
		pid, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		assert.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "pid %d still runs", pid)
	}
}

func TestDemo(t *testing.T) {
	cmd, tmp := command(t)
	raw, err := cmd.CombinedOutput()
	out := string(raw)
	require.NoError(t, err, out)
	for _, want := range []string{
		`Time is compressed`,
		`(?m)^1\. v2\.5\.0 is installed`,
		`✓ pid \d+ reports v2\.5\.0, rules in force: 1`,
		`Updated: v2\.5\.1 is installed in place of v2\.5\.0, sha256:[0-9a-f]{12}…, on trial`,
		`guard pre +v2\.5\.1 is on trial: 6s to confirm, then 2 more starts`,
		`✓ pid \d+ left with 0; pid \d+ says in its log, its status and by -v that it is v2\.5\.1`,
		`Confirmed: v2\.5\.1 is confirmed`,
		`✓ v2\.5\.0 is kept to go back to; requests: 1 program, 1 \.sha256`,
		`SpecUnread: .*connection refused`,
		`guard (?:pre +went back to v2\.5\.1|tick +restarting): not confirmed within 6s of its start`,
		`pid \d+ has ended: exit status 3`,
		`✓ try 1: pid \d+ never reached its API and left; pid \d+ is v2\.5\.1 again`,
		`✓ try 2: pid \d+ never reached its API and left; pid \d+ is v2\.5\.1 again`,
		`✓ its status says guilty v2\.5\.2: unhealthy`,
		`pid \d+ has ended: exit status 2, panic: assignment`,
		`✓ v2\.5\.3 was started 3 times and never got to Begin; pid \d+ is v2\.5\.1 again`,
		`✓ its status says guilty v2\.5\.3: crash`,
		`UpdateRejected: .*\s+v2\.5\.3\), 3 starts, not confirmed: crash: exit status 2`,
		`✓ pid \d+ is still v2\.5\.1 and at work: reconcile \d+ → \d+, rules in force: 2`,
		`✓ the \d+ files and directories in \$DIR/bin are what they were`,
		`UpdateRefused: .*an\s+ELF\s+file`,
		`UpdateRefused: digest\s+mismatch`,
		`power +fails: kill -9 of pid \d+`,
		`pid \d+ is start 2 of 3`,
		`\$ selfupdate rollback --target`,
		`✓ events RolledBack and UpdateRejected by pid \d+; the spec still says v2\.5\.5`,
		`✓ after \d+ reconciles it is still v2\.5\.1; requests: 0 program, \d+ \.sha256`,
		`v2\.5\.2, v2\.5\.3, v2\.5\.5 may be installed again: packets\s+were fine`,
		`✓ "firewall-controller -v", run \d+ times: not found or not executable: 0, ended badly: 0`,
		`v2\.5\.2 +\d+ +never reached its API, 2 trials: rejected +1 program,`,
		`v2\.5\.3 +\d+ +crashed at its start, 3 times: rejected +1 program,`,
		`v2\.5\.4 +- +another machine's: refused, never started +2 program,`,
		`v2\.5\.5 +\d+ +allowed again, on trial, confirmed +1 program, 1 \.sha256`,
	} {
		assert.Regexp(t, want, out)
	}
	assert.LessOrEqual(t, strings.Count(out, "\n"), 120, "lines; with -v there are more")
	for line := range strings.Lines(out) {
		assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), columns, line)
	}
	leavesNothing(t, tmp, out)
}

func TestDemoInterrupted(t *testing.T) {
	cmd, tmp := command(t, "-v")
	var out bytes.Buffer
	started := make(chan struct{})
	cmd.Stdout = &lineWriter{each: func(line string) {
		out.WriteString(line + "\n")
		if strings.Contains(line, "starting version=") {
			close(started)
		}
	}}
	require.NoError(t, cmd.Start())
	select {
	case <-started:
	case <-time.After(5 * time.Minute):
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	assert.Equal(t, 1, exit.ExitCode(), out.String())
	assert.Regexp(t, pidLine, out.String())
	leavesNothing(t, tmp, out.String())
}

func TestStepFailed(t *testing.T) {
	var out bytes.Buffer
	d := newDemo(t.TempDir(), &out)
	d.service = &service{screen: d.screen, runs: []process{{pid: 7}}}
	d.service.line(`time=w level=WARN msg="the last words" event=Updated`)
	d.service.line(`time=x level=WARN msg="the last words" event=Updated`)
	err := d.step(t.Context(), 4, step{"Something", func(context.Context) error { return errors.New("it is not there") }})
	require.ErrorContains(t, err, "step 4 (Something) did not happen")
	assert.Contains(t, out.String(), "✗ step 4 did not happen: it is not there")
	assert.Contains(t, out.String(), `    time=x level=WARN msg="the last words"`)
	assert.NotContains(t, out.String(), "time=w", "the same again")
	require.NoError(t, d.step(t.Context(), 4, step{"Something", func(context.Context) error { return nil }}), "the control")
}

func TestEventually(t *testing.T) {
	n := 0
	require.NoError(t, eventually(t.Context(), "it", func() error {
		if n++; n < 3 {
			return errors.New("not yet")
		}
		return nil
	}))
	ctx, cancel := context.WithTimeout(t.Context(), 2*look)
	defer cancel()
	err := eventually(ctx, "it", func() error { return errors.New("not yet") })
	assert.ErrorContains(t, err, "it: not yet, still after")
}

// A path that names nothing is counted apart from a program that fails by itself.
func TestPoller(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	p := &poller{}
	for _, script := range []string{"#!/bin/sh\necho v2.5.0\n", "#!/bin/sh\nexit 2\n", "#!/bin/sh\nkill -9 $$\n", "#!/bin/sh\necho nonsense\n"} {
		require.NoError(t, os.WriteFile(program, []byte(script), 0o755))
		p.once(program)
	}
	runs, crashes, answers, failures := p.result()
	assert.Equal(t, 4, runs)
	assert.Equal(t, 3, crashes)
	assert.Equal(t, []string{v0}, answers)
	assert.Empty(t, failures)

	require.NoError(t, os.WriteFile(program, []byte("\x7fELF and no more"), 0o755))
	p.once(program)
	require.NoError(t, os.Remove(program))
	p.once(program)
	_, crashes, _, failures = p.result()
	assert.Equal(t, 3, crashes)
	require.Len(t, failures, 2)
	assert.Contains(t, failures[0], "exec format error")
	assert.Contains(t, failures[1], "no such file")
}

// A broken version must not be built when its breakage does not fit the source any more.
func TestOverlay(t *testing.T) {
	d := newDemo(t.TempDir(), &bytes.Buffer{})
	for _, k := range kinds() {
		_, err := d.overlay("..", k)
		require.NoError(t, err, k.version)
	}
	_, err := d.overlay("..", kind{version: v0, patches: []patch{{"main.go", "func nobody(", ""}}})
	require.ErrorContains(t, err, "is not there once")
}

func TestWrap(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []string
	}{
		{"", []string{""}},
		{"one two", []string{"one two"}},
		{"one two three", []string{"one two", "three"}},
		{"0123456789abc", []string{"01234567", "89abc"}},
		{"12345678 9", []string{"12345678", "9"}},
	} {
		assert.Equal(t, tt.want, wrap(tt.text, 8), tt.text)
	}
}
