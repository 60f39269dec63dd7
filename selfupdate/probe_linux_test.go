package selfupdate

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func scriptFile(t *testing.T, lines string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(path, script(lines), 0o755))
	return path
}

// isAlive reports whether a process runs; one that nobody reaped does not.
func isAlive(t *testing.T, pidFile string) bool {
	t.Helper()
	pid, err := os.ReadFile(pidFile)
	require.NoError(t, err)
	stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

func TestRunProbe(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		want         string // of the error; "" is none
	}{
		{"succeeds", "echo v2; test \"$1\" = -v", ""},
		{"has no standard input", "read x && exit 1; exit 0", ""},
		{"hangs", "exec sleep 1000", "the program -v did not end within 1s: context deadline exceeded"},
		{"hangs and can't be told", "trap '' TERM INT HUP; while :; do sleep 0.1; done", "did not end within 1s"},
		{"stops itself", "kill -STOP $$", "did not end within 1s"},
		{"prints 100 MB", "head -c 100000000 /dev/zero", ""},
		{"prints 100 MB and fails", "head -c 100000000 /dev/zero; echo the end; exit 1", `\x00the end")`},
		{"prints for ever", "exec yes", `did not end within 1s: context deadline exceeded (…"`},
		{"dies by a signal", "echo why; kill -SEGV $$", `signal: segmentation fault ("why")`},
		{"dies by a signal with a core", "ulimit -c 0; kill -ABRT $$", "signal: aborted"},
		{"exits with 3", `printf 'a\033[2Jb\r\302\233c\377\nd'; exit 3`, `exit status 3 ("a\x1b[2Jb\r\u009bc\xff\nd")`},
		{"its interpreter is missing", "", "no such file or directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := scriptFile(t, tt.script)
			if tt.script == "" {
				require.NoError(t, os.WriteFile(path, []byte("#!/nowhere/sh\n"), 0o755))
			}
			err := probe(t.Context(), path, []string{"-v"}, time.Second)
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
			assert.Zero(t, ClassOf(err), "the program's fault")
			assert.NotErrorIs(t, err, errEnded)
			assert.NotRegexp(t, `[^\x20-\x7e…]`, err.Error())
			assert.Less(t, len(err.Error()), 1200)
		})
	}
}

// What a probe starts does not outlive it, as long as it stays in the group.
func TestRunProbeLeavesNothing(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		alive        bool
		want         error
	}{
		{"a child", "sleep 1000 >/dev/null 2>&1 & echo $! > pid", false, nil},
		{"a child that holds the output open", "sleep 1000 & echo $! > pid", false, nil},
		{"a child of a child", "sh -c 'sleep 1000 & echo $! > pid'", false, nil},
		{"a child of one that hangs", "sleep 1000 & echo $! > pid; wait", false, context.DeadlineExceeded},
		{"left the group and holds the output open", "setsid sh -c 'echo $$ > pid; exec sleep 1000' & until test -s pid; do sleep 0.01; done", true, nil}, // promised by nobody
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			pid := filepath.Join(dir, "pid")
			err := probe(t.Context(), scriptFile(t, "cd "+dir+"; "+tt.script), nil, 3*time.Second)
			require.ErrorIs(t, err, tt.want)
			if tt.alive {
				require.True(t, isAlive(t, pid))
				number, err := os.ReadFile(pid)
				require.NoError(t, err)
				command(t, "kill", strings.TrimSpace(string(number)))
				return
			}
			require.Eventually(t, func() bool { return !isAlive(t, pid) }, 5*time.Second, 5*time.Millisecond)
		})
	}
}

func TestRunProbeKeepsTheEndOnly(t *testing.T) {
	var out tail
	for range 3200 {
		n, err := out.Write(bytes.Repeat([]byte("x"), 32<<10))
		require.NoError(t, err)
		require.Equal(t, 32<<10, n)
	}
	_, _ = out.Write([]byte("the end"))
	assert.Len(t, out.kept, probeOutput)
	assert.LessOrEqual(t, cap(out.kept), 4*probeOutput)
	assert.True(t, strings.HasSuffix(out.text(), `xthe end")`))
	assert.True(t, strings.HasPrefix(out.text(), ` (…"x`))
}

// What this machine does to a probe is not the program's fault.
func TestRunProbeNotToBlame(t *testing.T) {
	t.Run("mounted noexec", func(t *testing.T) {
		dir := t.TempDir()
		mount(t, "tmpfs", dir, "tmpfs", unix.MS_NOEXEC, "mode=0755")
		path := filepath.Join(dir, "program")
		require.NoError(t, os.WriteFile(path, script("exit 0"), 0o755))
		err := RunProbe()(t.Context(), path)
		require.ErrorIs(t, err, ErrPermission)
		assert.Equal(t, Local, ClassOf(err))
		assert.Contains(t, err.Error(), "is it mounted noexec?")
	})
	t.Run("open for writing elsewhere, for a while", func(t *testing.T) {
		path := scriptFile(t, "exit 0")
		release := holdOpen(t, path)
		time.AfterFunc(300*time.Millisecond, release)
		require.NoError(t, RunProbe()(t.Context(), path))
	})
	t.Run("open for writing elsewhere", func(t *testing.T) {
		path := scriptFile(t, "exit 0")
		release := holdOpen(t, path)
		defer release()
		err := RunProbe()(t.Context(), path)
		require.ErrorIs(t, err, syscall.ETXTBSY)
		assert.Equal(t, Local, ClassOf(err))
	})
	for _, signal := range []string{"TERM", "KILL", "INT", "HUP"} { // as at a shutdown
		t.Run("ended by SIG"+signal, func(t *testing.T) {
			require.ErrorIs(t, RunProbe()(t.Context(), scriptFile(t, "exec env --default-signal sh -c 'kill -"+signal+" $$; sleep 5'")), errEnded)
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		started := filepath.Join(t.TempDir(), "started")
		path := scriptFile(t, "touch "+started+"; sleep 1000")
		go func() {
			for ctx.Err() == nil {
				if _, err := os.Stat(started); err == nil {
					cancel()
				}
				time.Sleep(5 * time.Millisecond)
			}
		}()
		err := RunProbe()(ctx, path)
		require.ErrorIs(t, err, context.Canceled)
		assert.NotErrorIs(t, err, context.DeadlineExceeded)
	})
}

// holdOpen has another process keep the file open for writing.
func holdOpen(t *testing.T, path string) (release func()) {
	t.Helper()
	cmd := exec.Command("sh", "-c", `exec 3>>"$1"; echo held; read x`, "sh", path)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = io.ReadFull(out, make([]byte, 5))
	require.NoError(t, err)
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	return func() { _ = in.Close() }
}

func probing(timeout time.Duration) func(*Config) {
	return func(c *Config) {
		c.AllowAnyFormat = true
		c.Probe = func(ctx context.Context, path string) error { return probe(ctx, path, []string{"-v"}, timeout) }
	}
}

// TestProbeVerdict: the verdict on a digest outlives the process, so that a broken
// program is run and downloaded once; what is not the program's fault is no verdict.
func TestProbeVerdict(t *testing.T) {
	foreign := foreign(t, "linux", "s390x")
	for _, tt := range []struct {
		name  string
		data  []byte
		class string // of the rejection; "" when there must be none
	}{
		{"hangs", script("exec sleep 1000"), classHang},
		{"fails", script(`printf 'no \033[31mlicence'; exit 3`), classExec},
		{"dies", script("kill -SEGV $$"), classExec},
		{"is for another machine", foreign, classExec},
		{"killed from outside", script("kill -TERM $$; sleep 5"), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path, rel := installed(t, "v1"), releaseWith("v2", tt.data)
			_, err := updater(t, path, probing(2*time.Second)).Apply(t.Context(), rel.Release)
			require.ErrorIs(t, err, ErrProbe)
			assert.Equal(t, Refused, ClassOf(err))
			assert.NotRegexp(t, `[^\x20-\x7e…]`, err.Error())
			assert.Equal(t, "v1", run(t, path))
			clean(t, path, tt.name)
			if tt.class == "" {
				_, err = updater(t, path, probing(time.Second)).Apply(t.Context(), rel.Release)
				require.ErrorIs(t, err, ErrProbe, "tried again")
				_, err = updater(t, path, probing(time.Second)).Apply(t.Context(), rel.Release)
				require.ErrorIs(t, err, ErrHeldBack)
				return
			}
			for range 3 { // another process each
				_, err = updater(t, path, probing(time.Second)).Apply(t.Context(), rel.Release)
				require.ErrorIs(t, err, ErrRejected)
			}
			assert.Equal(t, 1, rel.opened["app"])
			st, err := ReadStatus(path, nil)
			require.NoError(t, err)
			require.Len(t, st.Rejected, 1)
			assert.Equal(t, tt.class, st.Rejected[0].Class)
			assert.Equal(t, verdictGuilty, st.Rejected[0].Verdict)
			assert.NotRegexp(t, `[^\x20-\x7e…]`, st.Rejected[0].Reason)
			_, err = Clear(t.Context(), ClearOptions{Target: path, Digest: digestOf(tt.data)})
			require.NoError(t, err)
			_, err = updater(t, path, probing(time.Second)).Apply(t.Context(), rel.Release)
			require.ErrorIs(t, err, ErrProbe)
			assert.Equal(t, 2, rel.opened["app"])
		})
	}
}

// A probe that did not happen leaves no verdict.
func TestProbeNoVerdict(t *testing.T) {
	for _, tt := range []struct {
		name  string
		probe func(cancel func()) error
		want  error
	}{
		{"cancelled", func(cancel func()) error { cancel(); return context.Canceled }, context.Canceled},
		{"failed in a cancelled context", func(cancel func()) error { cancel(); return errors.New("exit status 1") }, nil},
		{"local", func(func()) error { return blame(&os.PathError{Op: "fork/exec", Err: syscall.EACCES}) }, ErrPermission},
		{"out of memory", func(func()) error { return blame(&os.PathError{Op: "fork/exec", Err: syscall.ENOMEM}) }, syscall.ENOMEM},
		{"temporary", func(func()) error { return ErrNetwork }, ErrNetwork},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path, rel := installed(t, "v1"), releaseOf(t, "v2", "v2")
			for n := 1; n <= 4; n++ {
				ctx, cancel := context.WithCancel(t.Context())
				_, err := updater(t, path, func(c *Config) {
					c.Probe = func(context.Context, string) error { return tt.probe(cancel) }
				}).Apply(ctx, rel.Release)
				cancel()
				require.Error(t, err)
				require.NotErrorIs(t, err, ErrProbe)
				if tt.want != nil {
					require.ErrorIs(t, err, tt.want)
				}
				assert.Equal(t, n, rel.opened["app"])
			}
			res, err := updater(t, path, func(c *Config) { c.Probe = RunProbe() }).Apply(t.Context(), rel.Release)
			require.NoError(t, err)
			assert.Equal(t, Updated, res.Outcome)
			assert.Equal(t, "v2", run(t, path))
		})
	}
}
