package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

// tool is the path of the tool, built as a release is.
var tool string

func TestMain(m *testing.M) {
	code := 1
	dir, err := os.MkdirTemp("", "selfupdate-guard-test-")
	if err == nil {
		tool = filepath.Join(dir, "selfupdate-guard")
		err = build()
	}
	if err == nil {
		err = os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func build() error {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version=v9.8.7-test", "-o", tool, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, out)
	}
	return nil
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", os.Getenv("PATH"))
			for _, name := range []string{"v1", "v2", "v3", "v4"} {
				env.Setenv("sum_"+name, digest(program(name)).String())
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":   cmdExits,
			"install": cmdInstall,
			"apply":   cmdApply,
			"holds":   cmdHolds,
			"silent":  cmdSilent,
		},
	})
}

// program is what the scripts install: small, and no program at all.
func program(name string) []byte { return []byte("#!/bin/sh\necho " + name + "\n") }

func digest(b []byte) checksum.Digest {
	h := sha256.New()
	h.Write(b)
	return checksum.Of(checksum.SHA256, h)
}

// exits CODE COMMAND...: the command ends with exactly that code.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	got := 0
	err := ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d, not %s", got, args[0])
	}
}

// silent COMMAND...: it ends well and says nothing.
func cmdSilent(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(ts.Exec(args[0], args[1:]...))
	if said := ts.ReadFile("stdout") + ts.ReadFile("stderr"); said != "" {
		ts.Fatalf("it said %q", said)
	}
}

// install PATH NAME: the program NAME is at PATH, as if somebody had put it there.
func cmdInstall(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(filepath.Dir(path), 0o755))
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		ts.Check(err)
	}
	ts.Check(os.WriteFile(path, program(args[1]), 0o755))
}

// holds PATH NAME: the file at PATH is the program NAME.
func cmdHolds(ts *testscript.TestScript, neg bool, args []string) {
	if same := ts.ReadFile(args[0]) == string(program(args[1])); same == neg {
		ts.Fatalf("%s holds %s: %v", args[0], args[1], same)
	}
}

// apply PATH NAME [STARTS DEADLINE]: an update to NAME, on trial when told so.
func cmdApply(ts *testscript.TestScript, neg bool, args []string) {
	var trial *selfupdate.Trial
	if len(args) == 4 {
		starts, err := strconv.Atoi(args[2])
		ts.Check(err)
		deadline, err := time.ParseDuration(args[3])
		ts.Check(err)
		trial = &selfupdate.Trial{Starts: starts, Deadline: deadline, Outside: true}
	}
	err := install(ts.MkAbs(args[0]), args[1], trial)
	if neg != (err != nil) {
		ts.Fatalf("apply: %v", err)
	}
}

func install(path, name string, trial *selfupdate.Trial) error {
	b := program(name)
	u, err := selfupdate.New(selfupdate.Config{
		Target: path, Trust: selfupdate.Pinned(digest(b)), Trial: trial, AllowAnyFormat: true, AllowOtherProgram: true,
	})
	if err != nil {
		return err
	}
	_, err = u.Apply(context.Background(), selfupdate.Release{Version: name, Assets: []selfupdate.Asset{{
		Name: "app", URL: "test:" + name, Size: int64(len(b)),
		Open: func(context.Context, selfupdate.Position) (selfupdate.Body, error) {
			return selfupdate.Body{ReadCloser: io.NopCloser(bytes.NewReader(b)), Size: int64(len(b))}, nil
		},
	}}})
	return err
}

// onTrial returns a target where v2 is on trial after v1, and its state directory.
func onTrial(t *testing.T, starts int) (target, state string) {
	t.Helper()
	target = filepath.Join(t.TempDir(), "app")
	require.NoError(t, os.WriteFile(target, program("v1"), 0o755))
	require.NoError(t, install(target, "v2", &selfupdate.Trial{Starts: starts, Deadline: time.Hour, Outside: true}))
	return target, filepath.Join(filepath.Dir(target), ".app.d")
}

// guard runs the tool and returns its exit code and what it wrote to standard error.
func guard(t *testing.T, args ...string) (code int, stderr string) {
	t.Helper()
	cmd := exec.Command(tool, args...)
	var b bytes.Buffer
	cmd.Stderr = &b
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil {
		require.ErrorAs(t, err, &exit)
	}
	return cmd.ProcessState.ExitCode(), b.String()
}

// TestPreNeverFails: whatever is broken, the service starts.
func TestPreNeverFails(t *testing.T) {
	must := func(t *testing.T, err error) { t.Helper(); require.NoError(t, err) }
	for _, tt := range []struct {
		name   string
		damage func(t *testing.T, target, state string)
		says   string
	}{
		{"nothing is", func(*testing.T, string, string) {}, "v2 is on trial: 1h to confirm, then 1 more start"},
		{"no target", func(t *testing.T, target, _ string) { must(t, os.Remove(target)) }, "v2 is on trial"},
		{"no record, no target", func(t *testing.T, target, state string) { must(t, os.Remove(target)); must(t, os.RemoveAll(state)) }, "target does not exist"},
		{"no directory", func(t *testing.T, target, _ string) { must(t, os.RemoveAll(filepath.Dir(target))) }, "target does not exist"},
		{"a directory at the target", func(t *testing.T, target, _ string) { must(t, os.Remove(target)); must(t, os.Mkdir(target, 0o755)) }, "not a regular file"},
		{"a link to nothing at the target", func(t *testing.T, target, _ string) {
			must(t, os.Remove(target))
			must(t, os.Symlink("nowhere", target))
		}, "a symbolic link to nothing"},
		{"damaged record", func(t *testing.T, _, state string) {
			must(t, os.WriteFile(state+"/state.json", []byte("{\"form"), 0o600))
		}, ""},
		{"empty record", func(t *testing.T, _, state string) { must(t, os.WriteFile(state+"/state.json", nil, 0o600)) }, ""},
		{"a record from the future", func(t *testing.T, _, state string) {
			must(t, os.WriteFile(state+"/state.json", []byte("{\"format\":99}\n"), 0o600))
		}, "newer"},
		{"a directory for a record", func(t *testing.T, _, state string) {
			must(t, os.Remove(state+"/state.json"))
			must(t, os.Mkdir(state+"/state.json", 0o700))
		}, "record"},
		{"a fifo for a record", func(t *testing.T, _, state string) {
			must(t, os.Remove(state+"/state.json"))
			must(t, syscall.Mkfifo(state+"/state.json", 0o600))
		}, "record"},
		{"a file for the state directory", func(t *testing.T, _, state string) {
			must(t, os.RemoveAll(state))
			must(t, os.WriteFile(state, nil, 0o600))
		}, "not a directory"},
		{"no slots", func(t *testing.T, _, state string) { must(t, os.RemoveAll(state+"/slots")) }, "v2 is on trial"},
		{"nothing to go back to", func(t *testing.T, target, state string) {
			must(t, os.RemoveAll(state+"/slots"))
			must(t, os.Remove(filepath.Dir(target)+"/.app.rollback"))
			for range 2 {
				_, _ = guard(t, "pre", "--target", target)
			}
		}, "no way back"},
		{"a lock that is held", func(t *testing.T, _, state string) {
			f, err := os.OpenFile(state+"/state.lock", os.O_RDWR|os.O_CREATE, 0o600)
			must(t, err)
			t.Cleanup(func() { _ = f.Close() })
			must(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
		}, "another update of this target is running"},
		{"read-only file system", func(t *testing.T, target, _ string) {
			dir := filepath.Dir(target)
			must(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
			t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
			must(t, unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		}, "read-only"},
		{"immutable", func(t *testing.T, _, state string) {
			out, err := exec.Command("chattr", "-R", "+i", state).CombinedOutput()
			require.NoError(t, err, "%s", out)
			t.Cleanup(func() { _ = exec.Command("chattr", "-R", "-i", state).Run() })
		}, "permitted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			target, state := onTrial(t, 2)
			tt.damage(t, target, state)
			code, stderr := guard(t, "pre", "--target", target)
			t.Log(stderr)
			assert.Equal(t, 0, code)
			assert.Contains(t, stderr, tt.says)
		})
	}
}

// TestUnfailing: no argument and no fault of the tool itself stops a service.
func TestUnfailing(t *testing.T) {
	target, _ := onTrial(t, 2)
	for _, tt := range []struct {
		name string
		args []string
		pre  func(context.Context, string, *slog.Logger) (selfupdate.Start, error)
		code int
		says string
	}{
		{"pre without a target", []string{"pre"}, pre, 0, "--target PATH is missing"},
		{"pre with a wrong flag", []string{"pre", "--taget", "x"}, pre, 0, "unknown flag --taget"},
		{"pre with an argument", []string{"pre", "--target", target, "x"}, pre, 0, "unexpected argument"},
		{"pre panics", []string{"pre", "--target", target}, func(context.Context, string, *slog.Logger) (selfupdate.Start, error) { panic("ouch") }, 0, "ouch"},
		{"pre hangs", []string{"pre", "--target", target}, func(context.Context, string, *slog.Logger) (selfupdate.Start, error) { select {} }, 0, "not done within 100ms"},
		{"post without a target", []string{"post"}, pre, 0, "--target PATH is missing"},
		{"post with a wrong flag", []string{"post", "--x"}, pre, 0, "unknown flag -x"},
		{"post with two results", []string{"post", "--target", target, "--orderly", "--result", "x"}, pre, 0, "not both"},
		{"tick, the control", []string{"tick"}, pre, 2, "--target PATH is missing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var stderr bytes.Buffer
			e := newEnv(io.Discard, &stderr, func(string) string { return "" })
			e.pre, e.preTime = tt.pre, 100*time.Millisecond
			if tt.name != "pre hangs" {
				e.preTime = time.Minute
			}
			assert.Equal(t, tt.code, e.run(t.Context(), tt.args))
			assert.Contains(t, stderr.String(), tt.says)
		})
	}
}

func TestEndingOf(t *testing.T) {
	for _, tt := range []struct {
		result, code, status string
		want                 selfupdate.Ending
		known                bool
	}{
		{"", "", "", selfupdate.Ending{}, false},
		{"success", "exited", "0", selfupdate.Ending{Orderly: true}, true},
		{"success", "killed", "TERM", selfupdate.Ending{Orderly: true}, true},
		{"exit-code", "exited", "1", selfupdate.Ending{Detail: "exit-code 1"}, true},
		{"exit-code", "exited", "203", selfupdate.Ending{NotExecuted: true, Detail: "exit-code 203"}, true},
		{"exit-code", "exited", "EXEC", selfupdate.Ending{NotExecuted: true, Detail: "exit-code EXEC"}, true},
		{"signal", "killed", "SEGV", selfupdate.Ending{Detail: "signal SEGV"}, true},
		{"signal", "killed", "KILL", selfupdate.Ending{Killed: true, Detail: "signal KILL"}, true},
		{"core-dump", "dumped", "ABRT", selfupdate.Ending{Detail: "core-dump ABRT"}, true},
		{"watchdog", "dumped", "ABRT", selfupdate.Ending{Hung: true, Detail: "watchdog, dumped ABRT"}, true},
		{"timeout", "killed", "KILL", selfupdate.Ending{Hung: true, Detail: "timeout, killed KILL"}, true},
		{"protocol", "", "", selfupdate.Ending{Detail: "protocol"}, true},
		{"oom-kill", "killed", "KILL", selfupdate.Ending{Killed: true, Detail: "oom-kill, killed KILL"}, true},
	} {
		t.Run(strings.TrimSpace(tt.result+" "+tt.status), func(t *testing.T) {
			got, known := endingOf(tt.result, tt.code, tt.status)
			assert.Equal(t, tt.known, known)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestRestartCheck(t *testing.T) {
	for _, tt := range []struct {
		name string
		r    restart
		want string // "" is right
	}{
		{"unit", restart{unit: "app@1.service", within: 1}, ""},
		{"command", restart{command: "rc-service app restart", within: 1}, ""},
		{"neither", restart{within: 1}, "how to restart"},
		{"both", restart{unit: "a", command: "b", within: 1}, "not both"},
		{"a flag", restart{unit: "--all", within: 1}, "not a unit's name"},
		{"two units", restart{unit: "a b", within: 1}, "not a unit's name"},
		{"a path", restart{unit: "../a", within: 1}, "not a unit's name"},
		{"no time", restart{unit: "a"}, "--restart-timeout"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.r.check(true)
			if tt.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

func TestRunRestart(t *testing.T) {
	assert.NoError(t, runRestart(t.Context(), restart{command: "true", within: time.Minute}))
	assert.ErrorContains(t, runRestart(t.Context(), restart{command: "echo no such service; exit 3", within: time.Minute}), "exit status 3: no such service")
	assert.ErrorIs(t, runRestart(t.Context(), restart{command: "sleep 60", within: 50 * time.Millisecond}), context.DeadlineExceeded)
}

// BenchmarkPre is a whole process: "pre" when stable, and the counted start.
func BenchmarkPre(b *testing.B) {
	target := filepath.Join(b.TempDir(), "app")
	require.NoError(b, os.WriteFile(target, program("v1"), 0o755))
	require.NoError(b, install(target, "v2", nil))
	run := func(b *testing.B, args ...string) {
		for b.Loop() {
			require.NoError(b, exec.Command(tool, args...).Run())
		}
	}
	b.Run("stable", func(b *testing.B) { run(b, "pre", "--target", target) })
	b.Run("version", func(b *testing.B) { run(b, "version") }) // the cost of any process
	require.NoError(b, install(target, "v3", &selfupdate.Trial{Starts: 16, Deadline: time.Hour, Outside: true}))
	b.Run("on trial", func(b *testing.B) { run(b, "post", "--orderly", "--target", target) })
}

// TestDocumentedCommands: what docs/operations.md and the units tell to type is
// understood: it may fail for this target, but never for its flags.
func TestDocumentedCommands(t *testing.T) {
	found := 0
	for _, name := range []string{"docs/operations.md", "README.md", "systemd/firewall-controller.service", "systemd/firewall-controller-selfupdate.service", "systemd/firewall-controller.service.d/10-selfupdate.conf"} {
		text, err := os.ReadFile(filepath.Join("../..", name))
		require.NoError(t, err)
		for _, m := range regexp.MustCompile("(?m)(?:^|`|/usr/local/bin/)selfupdate-guard ((?:pre|post|tick|status|confirm|rollback|clear) --target [^`\n]*)").FindAllSubmatch(text, -1) {
			found++
			target, _ := onTrial(t, 3)
			line := strings.NewReplacer("$T", target, "$U", "app", "--from v2.5.1", "--from v2", "sha256:…", digest(program("v2")).String(), "/usr/local/bin/firewall-controller", target).Replace(string(m[1]))
			line = strings.ReplaceAll(line, "--every 10s", "--every 10s & sleep 0.3; kill $!")
			cmd := exec.Command("sh", "-c", tool+" "+line)
			cmd.Env = append(os.Environ(), "PATH="+fakeSystemctl(t)+":"+os.Getenv("PATH"))
			out, _ := cmd.CombinedOutput()
			assert.Contains(t, []int{exitDone, exitTemporary}, cmd.ProcessState.ExitCode(), "%s: %s: %s", name, line, out)
		}
	}
	assert.Greater(t, found, 12)
}

// fakeSystemctl returns a directory with a systemctl that does nothing.
func fakeSystemctl(t *testing.T) string {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "systemctl"), []byte("#!/bin/sh\n"), 0o755))
	return dir
}
