package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

func TestExitCode(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want int
	}{
		{"none", nil, 0},
		{"temporary", fmt.Errorf("x: %w", selfupdate.ErrNetwork), 1},
		{"rate limit", &selfupdate.RateLimitError{Host: "h"}, 1},
		{"interrupted", fmt.Errorf("x: %w", context.Canceled), 1},
		{"deadline", &selfupdate.Error{Err: context.DeadlineExceeded}, 1},
		{"network without a class", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, 1},
		{"usage", usagef("x"), 2},
		{"argument that the library refuses", errors.New("x"), 2},
		{"refused", &selfupdate.Error{Err: selfupdate.ErrDigestMismatch}, 3},
		{"refused plan", &refused{fmt.Errorf("%w: x", selfupdate.ErrRejected)}, 3},
		{"local", &selfupdate.Error{Err: selfupdate.ErrBusy}, 4},
		{"file without a class", &fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}, 4},
		{"errno", syscall.ENOSPC, 4},
		{"output", &outputError{io.ErrClosedPipe}, 4},
	} {
		t.Run(tt.name, func(t *testing.T) { assert.Equal(t, tt.want, exitCode(tt.err)) })
	}
}

// sentinels are those of the library.
var sentinels = []error{
	selfupdate.ErrNotFound, selfupdate.ErrNetwork, selfupdate.ErrLimited, selfupdate.ErrDigestMismatch,
	selfupdate.ErrNoChecksum, selfupdate.ErrRejected, selfupdate.ErrTooLarge, selfupdate.ErrFormat,
	selfupdate.ErrOtherProgram, selfupdate.ErrAsset, selfupdate.ErrInsecure, selfupdate.ErrResponse,
	selfupdate.ErrManaged, selfupdate.ErrVersionMismatch, selfupdate.ErrBusy, selfupdate.ErrNoTarget,
	selfupdate.ErrOnTrial, selfupdate.ErrExpired, selfupdate.ErrCannotConfirm, selfupdate.ErrHeldBack,
	selfupdate.ErrPermission, selfupdate.ErrNoSpace, selfupdate.ErrNoPrevious, selfupdate.ErrRecordFormat,
}

// TestReport: every decision comes with what to do about it, in two lines.
func TestReport(t *testing.T) {
	for _, sentinel := range sentinels {
		t.Run(sentinel.Error(), func(t *testing.T) {
			var out, stderr bytes.Buffer
			e := &env{stdout: &out, stderr: &stderr, command: "apply", target: "/nowhere/app", changes: true}
			e.report(&selfupdate.Error{Step: "step", Path: "/nowhere/app", Err: errors.Join(fmt.Errorf("%w: why", sentinel))})
			lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
			require.Len(t, lines, 2)
			assert.Contains(t, lines[0], "selfupdate apply: step /nowhere/app: "+sentinel.Error()+": why")
			assert.Regexp(t, `^/nowhere/app is unchanged; .{8}`, lines[1])
			assert.Empty(t, out.String())
		})
	}
}

// TestAdvice: what differs within one sentinel.
func TestAdvice(t *testing.T) {
	sums := func(err error) error { return &selfupdate.Error{Step: "fetch checksum file", Err: err} }
	for _, tt := range []struct {
		name   string
		advice advice
		err    error
		want   string
		not    string
	}{
		{"a large asset", advice{}, &selfupdate.Error{Step: "download", Err: selfupdate.ErrTooLarge}, "raise --max-size", "fixed"},
		{"a large checksum file", advice{github: true}, sums(selfupdate.ErrTooLarge), "(--sums)", "--max-size"},
		{"a large list of releases", advice{github: true}, fmt.Errorf("github: a/b: %w", selfupdate.ErrTooLarge), "--tag and --asset", "--max-size"},
		{"http", advice{}, fmt.Errorf("%w: http://h/redirect", selfupdate.ErrInsecure), "--digest", "redirect"},
		{"http with a password", advice{pinned: true}, fmt.Errorf("%w: a credential", selfupdate.ErrInsecure), "--allow-http", "--digest"},
		{"redirect to http", advice{}, fmt.Errorf("%w: http://h/ (redirect)", selfupdate.ErrInsecure), "never followed", "--"},
		{"redirect to http, allowed", advice{pinned: true}, fmt.Errorf("%w: redirect from https to http://h/", selfupdate.ErrInsecure), "never followed", "--"},
		{"the API by http", advice{plainAPI: true, pinned: true}, fmt.Errorf("APIURL: %w", selfupdate.ErrInsecure), "--allow-http", "--digest"},
		{"another asset's sum", advice{github: true}, fmt.Errorf("%w: %w", selfupdate.ErrNoChecksum, checksum.ErrNotListed), "--asset", "--sums-url"},
		{"certificate", advice{github: true}, fmt.Errorf("%w: the certificate is signed by an unknown authority", selfupdate.ErrResponse), "trusts", "token"},
		{"token refused", advice{github: true, token: true}, fmt.Errorf("%w: status 401: the token was refused", selfupdate.ErrResponse), "the token", "OWNER"},
		{"403 without a token", advice{github: true}, fmt.Errorf("%w: status 403", selfupdate.ErrResponse), "needs --token-file", "rights"},
		{"403 of a web server", advice{}, sums(fmt.Errorf("%w: status 403", selfupdate.ErrResponse)), "check the address", "token"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.advice.about(tt.err, &env{command: "apply", target: "/nowhere/app"})
			assert.Contains(t, got, tt.want)
			assert.NotContains(t, got, tt.not)
		})
	}
}

func TestReportState(t *testing.T) {
	for _, tt := range []struct {
		name    string
		err     error
		command string
		changes bool
		want    string
	}{
		{"unchanged", &selfupdate.Error{Err: selfupdate.ErrBusy}, "apply", true, "unchanged"},
		{"replaced", &selfupdate.Error{State: selfupdate.Replaced, Err: selfupdate.ErrNoSpace}, "apply", true, "replaced"},
		{"restored", &selfupdate.Error{State: selfupdate.Restored, Err: selfupdate.ErrNoSpace}, "rollback", true, "restored"},
		{"a command that changes nothing", &selfupdate.Error{Err: selfupdate.ErrPermission}, "status", false, ""},
		{"nobody can read the result", &outputError{io.ErrClosedPipe}, "apply", true, ""},
		{"usage", usagef("x"), "apply", true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := &env{command: tt.command, target: "/nowhere/app", changes: tt.changes}
			assert.Equal(t, tt.want, e.state(tt.err))
		})
	}
}

func TestReportJSON(t *testing.T) {
	var out bytes.Buffer
	e := &env{stdout: &out, stderr: io.Discard, json: true, command: "apply", target: "/nowhere/app", changes: true}
	assert.Equal(t, 4, e.report(&selfupdate.Error{Step: "lock", State: selfupdate.Replaced, Err: selfupdate.ErrBusy}))
	assert.JSONEq(t, `{"error": "lock: another update of this target is running (the target is the new program)",
		"class": "local", "state": "replaced", "advice": "wait until the other update has ended; or, if that is a service's own: stop it, do this again, and start it"}`, out.String())
}

// TestReportControl: nothing that a server sends can steer a terminal.
func TestReportControl(t *testing.T) {
	var stderr bytes.Buffer
	e := &env{stdout: io.Discard, stderr: &stderr}
	e.report(errors.New("a\x1b[2Jb\u009bc\r\nd\u202e"))
	assert.Equal(t, "selfupdate: a?[2Jb?c?; d?\n"+"see selfupdate --help\n", stderr.String())
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		args, want []string
		flag       string
	}{
		{[]string{"a", "--flag", "x", "b"}, []string{"a", "b"}, "x"},
		{[]string{"--flag=x", "a"}, []string{"a"}, "x"},
		{[]string{"a", "b", "-flag", "x"}, []string{"a", "b"}, "x"},
		{[]string{"--", "--flag", "x"}, []string{"--flag", "x"}, ""},
		{[]string{"a", "--flag", "x", "--", "-b", "--"}, []string{"a", "-b", "--"}, "x"},
		{[]string{"-"}, []string{"-"}, ""},
		{nil, nil, ""},
	} {
		fs := (&env{}).newFlags("test")
		value := fs.String("flag", "", "")
		got, err := parse(fs, tt.args)
		require.NoError(t, err)
		assert.Equal(t, tt.want, got, "%q", tt.args)
		assert.Equal(t, tt.flag, *value, "%q", tt.args)
	}
}

func TestAsksJSON(t *testing.T) {
	for args, want := range map[string]bool{
		"":                  false,
		"-o json":           true,
		"--nope -o json":    true,
		"x --o=json --nope": true,
		"-o text -o=json":   true,
		"-o json -o text":   false,
		"-- -o json":        false,
		"--nope -o":         false,
		"-o=":               false,
		"--x --json":        true,
		"--json=false":      false,
	} {
		assert.Equal(t, want, asksJSON(strings.Fields(args)), args)
	}
}

// TestHelp: each flag of each command is explained, with its default, and no line
// is too wide for a terminal.
func TestHelp(t *testing.T) {
	for _, c := range commands(&env{}) {
		t.Run(c.name, func(t *testing.T) {
			c.flags.VisitAll(func(f *flag.Flag) {
				assert.Contains(t, c.order, f.Name)
				assert.Regexp(t, `default|required`, flagHelp(f), f.Name)
			})
			for _, name := range c.order {
				if !strings.HasSuffix(name, ":") {
					assert.NotNil(t, c.flags.Lookup(name), name)
				}
			}
			for line := range strings.SplitSeq(c.help(), "\n") {
				assert.LessOrEqual(t, len(line), 100, line)
			}
			assert.Contains(t, c.help(), exitCodes)
		})
	}
}

func TestProgramName(t *testing.T) {
	p := "-linux-amd64"
	if h := selfupdate.Host(); h.OS != "linux" || h.Arch != "amd64" {
		p = "-" + platform
	}
	for _, tt := range []struct {
		name, base, repo string
		assets           []string
		want             string
	}{
		{"the target's name", "app", "repo", []string{"app" + p, "repo" + p}, "app"},
		{"the repository's name", "app", "metalctl", []string{"metalctl" + p, "metalctl" + p + ".sha512"}, "metalctl"},
		{"a part of a word is no mention", "ctl", "metalctl", []string{"metalctl" + p}, "metalctl"},
		{"another program that mentions it", "server", "tool", []string{"tool" + p, "tool-server" + p}, "server"},
		{"neither", "app", "repo", []string{"x" + p, "y" + p}, "app"},
		{"no assets", "app", "repo", nil, "app"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, programName(tt.assets, tt.base, tt.repo))
			slices.Reverse(tt.assets)
			assert.Equal(t, tt.want, programName(tt.assets, tt.base, tt.repo))
		})
	}
}

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(1000, 0)
	p := &progress{w: &out, now: func() time.Time { return now }}
	for done := int64(0); done <= 40<<20; done += 1 << 20 { // 25 ms each: a second
		p.update(done, 40<<20)
		now = now.Add(25 * time.Millisecond)
	}
	p.finish()
	lines := strings.Split(out.String(), "\r")
	assert.Equal(t, "", lines[0])
	assert.Len(t, lines[1:], 12, "each tenth of a second, and the end")
	assert.Equal(t, "0 B of 40.0 MiB, 0 %", lines[1])
	assert.Equal(t, "20.0 MiB of 40.0 MiB, 50 %, 40.0 MiB/s", lines[6])
	assert.Equal(t, "40.0 MiB of 40.0 MiB, 100 %, 39.0 MiB/s in 1s\n", lines[12])

	out.Reset()
	p.update(100, -1)
	p.finish()
	assert.Equal(t, "\r100 B\r100 B in 0s\n", out.String())

	var none *progress
	none.update(1, 2)
	none.finish()
}

// TestInstall is an update and a way back inside this process, so that the race
// detector and the coverage see them.
func TestInstall(t *testing.T) {
	s := startServer()
	defer s.close()
	target := filepath.Join(t.TempDir(), "app")
	require.NoError(t, os.WriteFile(target, programs["v1"], 0o755))
	for _, tt := range []struct {
		args string
		want int
		now  string
	}{
		{"apply --url URL/ok/v2/app --version v2 --allow-http --unsigned-checksum x --verbose", exitDone, "v2"},
		{"apply --url URL/ok/v2/app --version v2 --allow-http --unsigned-checksum x", exitDone, "v2"},
		{"apply --url URL/wrong/v3/app --allow-http --unsigned-checksum x", exitRefused, "v2"},
		{"rollback", exitDone, "v1"},
		{"apply --github acme/app --tag v1.2.0 --asset app-PLATFORM --api-url API --allow-http --unsigned-checksum x", exitRefused, "v1"},
		{"status", exitDone, "v1"},
		{"clear", exitDone, "v1"},
		{"apply --github acme/app --api-url API --allow-http --unsigned-checksum x -o json", exitDone, "v3"},
	} {
		line := strings.NewReplacer("URL", s.URL+"/files", "API", s.URL+"/api/v3", "PLATFORM", platform).Replace(tt.args)
		var out bytes.Buffer
		code := run(t.Context(), append(strings.Fields(line), "--target", target), nil, &out, &out)
		require.Equal(t, tt.want, code, "%s: %s", line, &out)
		got, err := os.ReadFile(target)
		require.NoError(t, err)
		require.True(t, bytes.Equal(programs[tt.now], got), line)
	}
}
