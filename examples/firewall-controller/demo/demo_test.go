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
	_, err = output(context.Background(), ".", "go", "build", "-o", file, ".")
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
func command(t *testing.T) (cmd *exec.Cmd, tmp string) {
	t.Helper()
	file, err := demoBinary()
	require.NoError(t, err)
	tmp = t.TempDir()
	cmd = exec.CommandContext(t.Context(), file)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	return cmd, tmp
}

var pidLine = regexp.MustCompile(`started pid (\d+)`)

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
		`(?m)^1\. v2\.5\.0 is installed`,
		`✓ pid \d+ reports v2\.5\.0, rules in force: 1`,
		`v2\.5\.1 is installed in place of v2\.5\.0, sha256:[0-9a-f]{12}… event=Updated`,
		`pid \d+ has ended: exit status 0`,
		`✓ pid \d+ left with 0; pid \d+ says in its log, its status and by -v that it is v2\.5\.1`,
		`✓ v2\.5\.0 is kept to go back to; requests: 1 program, 1 \.sha256`,
		`digest\s+mismatch`,
		`✓ event UpdateRefused by pid \d+`,
		`✓ pid \d+ is still v2\.5\.1 and at work: reconcile \d+ → \d+, rules in force: 2`,
		`✓ the \d+ files and directories in \$DIR/bin are what they were`,
		`✓ pid \d+ left with 0; pid \d+ says in its log, its status and by -v that it is v2\.5\.2`,
		`\$ selfupdate rollback --target`,
		`✓ events RolledBack and UpdateRejected by pid \d+; the spec still says v2\.5\.2`,
		`✓ after \d+ reconciles it is still v2\.5\.1; requests: 0 program, \d+ \.sha256`,
		`\$ selfupdate clear --target`,
		`✓ "firewall-controller -v", run all the while: \d+ runs, 0 failures`,
		`✓ and it answered v2\.5\.0, then v2\.5\.1, then v2\.5\.2, then v2\.5\.1, then v2\.5\.2`,
		`v2\.5\.2 +\d+ +allowed again, installed +1 program, 1 \.sha256`,
	} {
		assert.Regexp(t, want, out)
	}
	for line := range strings.Lines(out) {
		assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), columns, line)
	}
	leavesNothing(t, tmp, out)
}

func TestDemoInterrupted(t *testing.T) {
	cmd, tmp := command(t)
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
	d.service.line(`time=x level=WARN msg="the last words" event=Updated`)
	err := d.step(t.Context(), 4, step{"Something", func(context.Context) error { return errors.New("it is not there") }})
	require.ErrorContains(t, err, "step 4 (Something) did not happen")
	assert.Contains(t, out.String(), "✗ step 4 did not happen: it is not there")
	assert.Contains(t, out.String(), `    time=x level=WARN msg="the last words"`)
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

func TestPoller(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\necho v2.5.0\n"), 0o755))
	p := &poller{}
	p.once(program)
	require.NoError(t, os.Remove(program))
	p.once(program)
	runs, answers, failures := p.result()
	assert.Equal(t, 2, runs)
	assert.Equal(t, []string{v0}, answers)
	require.Len(t, failures, 1)
	assert.Contains(t, failures[0], "no such file")
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
