package selfupdate

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// childCommand is this test binary as an updater of its own.
func childCommand(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	self, err := os.Executable()
	if err == nil {
		cmd.Path = self
	}
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join(args, "\n"))
	return cmd
}

// TestOrderOfSystemCalls traces one update from outside: what has to be durable
// is so before what relies on it.
func TestOrderOfSystemCalls(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Fatal("this test needs strace (apt-get install strace)")
	}
	path := installed(t, "v1")
	trace := filepath.Join(t.TempDir(), "trace")
	child := childCommand("apply", path, programs["v2"], content256(t, programs["v2"]).String())
	cmd := exec.Command("strace", "-f", "-y", "-qq", "-s", "300", "-o", trace,
		"-e", "trace=openat,fsync,fdatasync,link,linkat,rename,renameat,renameat2,unlinkat", child.Path)
	cmd.Env = child.Env
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, "v2", run(t, path))

	dir := filepath.Dir(path)
	slots := dir + "/.app.d/slots"
	v1, v2 := content256(t, programs["v1"]).Hex(), content256(t, programs["v2"]).Hex()
	q := regexp.QuoteMeta
	inOrder(t, trace, []string{
		`openat\(.*"` + q(slots) + `/\.dl-[a-z0-9]+", O_RDWR\|O_CREAT\|O_EXCL\|O_NOFOLLOW\|O_CLOEXEC, 0600\)`,
		`fsync\(\d+<` + q(slots) + `/\.dl-[a-z0-9]+>\) += 0`,
		`rename.*"` + q(slots) + `/\.dl-[a-z0-9]+".*"` + q(slots+"/"+v2) + `"`,
		`linkat\(.*"` + q(path) + `", .*"` + q(dir) + `/\.app\.d/\.tmp-`,
		`rename.*"` + q(slots+"/"+v1) + `"`,
		`fsync\(\d+<` + q(slots) + `>\) += 0`,
		`linkat\(.*"` + q(path) + `", .*"` + q(dir) + `/\.app\.d/\.tmp-`,
		`rename.*"` + q(dir) + `/\.app\.rollback"`,
		`fsync\(\d+<` + q(dir) + `>\) += 0`,
		`openat\(.*"` + q(dir) + `/\.app\.d/\.tmp-[a-z0-9]+", O_RDWR\|O_CREAT\|O_EXCL`,
		`fsync\(\d+<` + q(dir) + `/\.app\.d/\.tmp-[a-z0-9]+>\) += 0`,
		`rename.*"` + q(dir) + `/\.app\.d/state\.json"`,
		`fsync\(\d+<` + q(dir) + `/\.app\.d>\) += 0`,
		`linkat\(.*"` + q(slots+"/"+v2) + `"`,
		`rename.*\.tmp-[a-z0-9]+".*"` + q(path) + `"`,
		`fsync\(\d+<` + q(dir) + `>\) += 0`,
		`rename.*"` + q(dir) + `/\.app\.d/state\.json"`,
	})
	data, err := os.ReadFile(trace)
	require.NoError(t, err)
	data = []byte(wholePaths(string(data)))
	assert.Len(t, regexp.MustCompile(`(?m)(rename|link|unlink|openat\(.*O_(WRONLY|RDWR|TRUNC)).*"`+q(path)+`"(\)|, \d+\)|, O_)`).FindAll(data, -1), 1,
		"the target's name is touched by one call alone")
}

// wholePaths writes the names in a trace that are relative to a directory as paths.
func wholePaths(trace string) string { return relativeName.ReplaceAllString(trace, `$1, "$2/$3"`) }

var relativeName = regexp.MustCompile(`(\d+<(/[^>]*)>), "([^"/]+)"`)

// inOrder wants lines of the trace to match the patterns, one after the other.
func inOrder(t *testing.T, trace string, patterns []string) {
	t.Helper()
	f, err := os.Open(trace)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	var rest []string
	for _, p := range patterns {
		re, found := regexp.MustCompile(p), false
		rest = nil
		for !found && lines.Scan() {
			found = re.MatchString(wholePaths(lines.Text()))
			rest = append(rest, wholePaths(lines.Text()))
		}
		require.True(t, found, "no (later) line matches %s; the lines looked at:\n%s", p, strings.Join(rest, "\n"))
	}
}

// TestNeverWithoutTheProgram runs the target in a loop during 200 updates.
func TestNeverWithoutTheProgram(t *testing.T) {
	path := installed(t, "v1")
	ctx, stop := context.WithCancel(t.Context())
	var runs atomic.Int64
	failures := make(chan error, 1)
	go func() {
		defer close(failures)
		for ctx.Err() == nil {
			out, err := exec.Command(path).Output()
			if s := strings.TrimSpace(string(out)); err != nil || s != "v1" && s != "v2" {
				failures <- fmt.Errorf("run %d: %q, %w", runs.Load(), out, err)
				return
			}
			runs.Add(1)
		}
	}()
	u := updater(t, path)
	for i := range 200 {
		v := []string{"v2", "v1"}[i%2]
		res, err := u.Apply(t.Context(), releaseOf(t, v, v).Release)
		require.NoError(t, err)
		require.Equal(t, Updated, res.Outcome)
	}
	stop()
	require.NoError(t, <-failures)
	t.Logf("200 updates, %d runs of the target, 0 failures", runs.Load())
	assert.Greater(t, runs.Load(), int64(20))
}

// TestTwoProcesses lets two processes update one target a hundred times each, as
// fast as they can: always a whole program, and the loser gets ErrBusy.
func TestTwoProcesses(t *testing.T) {
	path := installed(t, "v1")
	var cmds []*exec.Cmd
	var outs []*bytes.Buffer
	for range 2 {
		cmd := childCommand("contend", path, programs["v1"], programs["v2"], programs["v3"])
		out := new(bytes.Buffer)
		cmd.Stdout, cmd.Stderr = out, out
		require.NoError(t, cmd.Start())
		cmds, outs = append(cmds, cmd), append(outs, out)
	}
	done := make(chan error, 2)
	for _, cmd := range cmds {
		go func() { done <- cmd.Wait() }()
	}
	var ok, busy, looks int
	for left := 2; left > 0; looks++ {
		select {
		case err := <-done:
			require.NoError(t, err, "%s%s", outs[0], outs[1])
			left--
		default:
			require.NotEqual(t, "broken", whole(t, path))
		}
	}
	for _, out := range outs {
		var n, b int
		_, err := fmt.Sscanf(out.String(), "%d done, %d busy", &n, &b)
		require.NoError(t, err, "%s", out)
		ok, busy = ok+n, busy+b
	}
	t.Logf("200 updates by two processes: %d done, %d busy, whole at each of %d looks", ok, busy, looks)
	assert.Equal(t, 200, ok+busy)
	assert.Positive(t, ok)
	assert.Contains(t, []string{"v1", "v2", "v3"}, run(t, path))
	clean(t, path, "at the end")
}

// TestBusy holds the lock by an update that hangs in its download.
func TestBusy(t *testing.T) {
	path := installed(t, "v1")
	pr, pw := io.Pipe()
	rel := releaseOf(t, "v2", "v2")
	started := make(chan struct{})
	rel.Assets[0].Open = func(context.Context, Position) (Body, error) {
		close(started)
		return Body{ReadCloser: pr, Size: -1}, nil
	}
	done := make(chan error)
	go func() {
		_, err := updater(t, path).Apply(t.Context(), rel.Release)
		done <- err
	}()
	<-started
	_, err := updater(t, path).Apply(t.Context(), releaseOf(t, "v3", "v3").Release)
	require.ErrorIs(t, err, ErrBusy)
	assert.Equal(t, Local, ClassOf(err))
	_, err = Rollback(t.Context(), RollbackOptions{Target: path})
	require.ErrorIs(t, err, ErrBusy)
	code := childCommand("apply", path, programs["v3"], content256(t, programs["v3"]).String())
	require.Error(t, code.Run(), "another process is told the same")
	_, err = ReadStatus(path, nil)
	require.NoError(t, err, "reading waits for nobody")

	_, err = pw.Write(contents["v2"])
	require.NoError(t, err)
	require.NoError(t, pw.Close())
	require.NoError(t, <-done)
	assert.Equal(t, "v2", run(t, path))
}

// TestKilledProcess kills a real process in the middle of a download: the lock is
// free at once, and what it left goes.
func TestKilledProcess(t *testing.T) {
	path := installed(t, "v1")
	fifo := filepath.Join(t.TempDir(), "payload")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	cmd := childCommand("apply", path, fifo, content256(t, programs["v2"]).String())
	require.NoError(t, cmd.Start())
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer func() { _ = w.Close() }()
	_, err = w.Write(contents["v2"][:600<<10])
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		names, _ := os.ReadDir(filepath.Join(filepath.Dir(path), ".app.d/slots"))
		return len(names) == 1
	}, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	assert.Equal(t, "v1", run(t, path))

	_, err = updater(t, path).Apply(t.Context(), releaseOf(t, "v3", "v3").Release)
	require.NoError(t, err)
	assert.Equal(t, "v3", run(t, path))
	clean(t, path, "after the kill")
}

func TestCancelled(t *testing.T) {
	path := installed(t, "v1")
	ctx, cancel := context.WithCancel(t.Context())
	rel := releaseOf(t, "v2", "v2")
	rel.Assets[0].Open = func(context.Context, Position) (Body, error) {
		return Body{ReadCloser: io.NopCloser(readerFunc(func(p []byte) (int, error) {
			cancel()
			return copy(p, contents["v2"]), nil
		})), Size: -1}, nil
	}
	_, err := updater(t, path).Apply(ctx, rel.Release)
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, []string{".app.d", ".app.d/slots", "app"}, sorted(listing(t, filepath.Dir(path))))
}

// TestMemoryIsFlat measures the peak of a process that applies 8 and 128 MiB.
func TestMemoryIsFlat(t *testing.T) {
	if raceEnabled {
		return // the detector's shadow memory is what would be measured
	}
	peak := func(mib int64) int64 {
		path := installed(t, "v1")
		payload := filepath.Join(t.TempDir(), "payload")
		require.NoError(t, os.WriteFile(payload, contents["v2"], 0o755))
		require.NoError(t, os.Truncate(payload, mib<<20)) // zeros behind the program
		cmd := childCommand("apply", path, payload, content256(t, payload).String())
		cmd.Env = append(cmd.Env, "GOMAXPROCS=2")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(out) // not ru_maxrss: that includes the parent at the fork
		require.NotNil(t, m, "%s", out)
		kib, err := strconv.ParseInt(string(m[1]), 10, 64)
		require.NoError(t, err)
		return kib >> 10
	}
	small, large := peak(8), peak(128)
	t.Logf("peak memory: %d MiB for 8 MiB, %d MiB for 128 MiB", small, large)
	assert.LessOrEqual(t, large, small+8, "it does not grow with the program")
}

func TestLockSurvivesAFork(t *testing.T) {
	path := installed(t, "v1")
	u := updater(t, path)
	release, err := u.target.acquire()
	require.NoError(t, err)
	sleeper := exec.Command("sleep", "30") // inherits nothing: the lock file is close-on-exec
	require.NoError(t, sleeper.Start())
	t.Cleanup(func() { _ = sleeper.Process.Kill(); _ = sleeper.Wait() })
	release()
	release, err = u.target.acquire()
	require.NoError(t, err)
	release()
}

// TestTwentyContenders counts who holds the lock at once.
func TestTwentyContenders(t *testing.T) {
	u := updater(t, installed(t, "v1"))
	require.NoError(t, u.target.makeState())
	var holders, most, got atomic.Int64
	done := make(chan struct{})
	for range 20 {
		go func() {
			for range 50 {
				release, err := u.target.acquireState(t.Context())
				if err != nil {
					t.Error(err)
					break
				}
				if n := holders.Add(1); n > most.Load() {
					most.Store(n)
				}
				got.Add(1)
				runtime.Gosched()
				holders.Add(-1)
				release()
			}
			done <- struct{}{}
		}()
	}
	for range 20 {
		<-done
	}
	assert.Equal(t, int64(1), most.Load())
	assert.Equal(t, int64(1000), got.Load(), strconv.Itoa(int(got.Load())))
}
