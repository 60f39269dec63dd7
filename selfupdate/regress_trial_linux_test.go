package selfupdate

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// services are versions 1 to 3 of testdata/service, which contain this module.
var services = sync.OnceValues(func() (map[string][]byte, error) {
	dir, err := os.MkdirTemp("", "selfupdate-service-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out := filepath.Join(dir, "service")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", out, "./testdata/service")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if msg, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w: %s", err, msg)
	}
	data, err := os.ReadFile(out)
	all := map[string][]byte{}
	for v := 1; v <= 3; v++ {
		all[strconv.Itoa(v)] = bytes.ReplaceAll(data, []byte("version-0"), []byte("version-"+strconv.Itoa(v)))
	}
	return all, err
})

// unit is a supervisor with real processes: what a systemd unit with Restart=always
// and, if helped, selfupdate-guard in ExecStartPre and ExecStopPost does.
type unit struct {
	t      *testing.T
	path   string
	helped bool
	does   map[string]string // what a version does
	starts []string          // the versions that were started
}

func newUnit(t *testing.T, helped bool, does map[string]string) *unit {
	t.Helper()
	all, err := services()
	require.NoError(t, err)
	u := &unit{t: t, path: filepath.Join(t.TempDir(), "app"), helped: helped, does: does}
	require.NoError(t, os.WriteFile(u.path, all["1"], 0o755))
	awaitForks() // that nobody has it open for writing
	return u
}

func (u *unit) update(version string) (Result, error) {
	u.t.Helper()
	all, err := services()
	require.NoError(u.t, err)
	up := updater(u.t, u.path, func(c *Config) { c.Trial = &Trial{Starts: 3, Deadline: time.Minute} })
	return up.Apply(u.t.Context(), releaseWith(version, all[version]).Release)
}

func (u *unit) at() string {
	u.t.Helper()
	all, err := services()
	require.NoError(u.t, err)
	got := content256(u.t, u.path)
	for v, data := range all {
		if digestOf(data) == got {
			return v
		}
	}
	u.t.Fatal("no whole program at the target")
	return ""
}

// start starts what is at the target, as the unit does, and returns the process.
func (u *unit) start() (cmd *exec.Cmd, out *output) {
	u.t.Helper()
	if u.helped {
		h, err := NewHelper(u.path, nil)
		require.NoError(u.t, err)
		_, err = h.Pre(u.t.Context())
		require.NoError(u.t, err)
	}
	v := u.at()
	u.starts = append(u.starts, v)
	out = new(output)
	for range 50 {
		cmd = exec.Command(u.path, u.does[v])
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, out, 10*time.Second
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		err := cmd.Start()
		if errors.Is(err, syscall.ETXTBSY) {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		require.NoError(u.t, err)
		return cmd, out
	}
	u.t.Fatal("text file busy")
	return nil, nil
}

// run runs the program until it ends and returns its exit code.
func (u *unit) run() (code int, out string) {
	u.t.Helper()
	cmd, b := u.start()
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		u.t.Fatal(err)
	}
	if u.helped {
		h, err := NewHelper(u.path, nil)
		require.NoError(u.t, err)
		require.NoError(u.t, h.Post(u.t.Context(), Ending{Detail: cmd.ProcessState.String()}))
	}
	return cmd.ProcessState.ExitCode(), b.String()
}

// A binary that ends with 1, before or right after Begin, under a supervisor that
// only knows to start it again: after three starts the one before is back.
func TestSupervisedCrashLoop(t *testing.T) {
	for _, tt := range []struct {
		name, does string
		helped     bool
		starts     []string
		class      string
		verdict    string
	}{
		{"at once, with a helper", "crash", true, []string{"2", "2", "2", "1"}, classCrash, verdictGuilty},
		{"after Begin, with a helper", "late", true, []string{"2", "2", "2", "1"}, classUnhealthy, verdictInconclusive},
		{"after Begin, without", "late", false, []string{"2", "2", "2", "2", "1"}, classUnhealthy, verdictInconclusive},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := newUnit(t, tt.helped, map[string]string{"1": "work", "2": tt.does})
			res, err := u.update("2")
			require.NoError(t, err)
			require.True(t, res.OnTrial)
			var codes []int
			for range 10 {
				code, out := u.run()
				if codes = append(codes, code); code == 0 {
					assert.Contains(t, out, "version-1 confirmed")
					break
				}
			}
			t.Logf("started %v, exit codes %v", u.starts, codes)
			assert.Equal(t, tt.starts, u.starts)
			assert.Zero(t, codes[len(codes)-1])
			if !tt.helped {
				assert.Equal(t, 75, codes[3], "the code that the program chose to ask for a restart")
			}
			st, err := ReadStatus(u.path, nil)
			require.NoError(t, err)
			require.Len(t, st.Rejected, 1)
			assert.Equal(t, tt.class, st.Rejected[0].Class)
			assert.Equal(t, tt.verdict, st.Rejected[0].Verdict)
			_, err = u.update("3")
			require.NoError(t, err, "a corrected version is welcome")
			code, out := u.run()
			assert.Zero(t, code)
			assert.Contains(t, out, "version-3 confirmed")
		})
	}
}

// TestKilledWithItsGroup kills the program on trial with all that it started, at
// moments from its exec on: no child is needed for the way back, the next start
// decides from what is on the disk.
func TestKilledWithItsGroup(t *testing.T) {
	for _, helped := range []bool{true, false} {
		t.Run(fmt.Sprintf("with a helper: %v", helped), func(t *testing.T) {
			kills, before := 0, 0
			for _, after := range []time.Duration{0, time.Millisecond, 2 * time.Millisecond, 4 * time.Millisecond, 8 * time.Millisecond, 16 * time.Millisecond, -1} {
				u := newUnit(t, helped, map[string]string{"1": "work", "2": "hang"})
				_, err := u.update("2")
				require.NoError(t, err)
				for n := 0; u.at() == "2" && n < 20; n++ {
					wait := after
					if !helped && n >= 10 { // without one a start counts once it gets to Begin
						wait = -1
					}
					if u.killed(wait) {
						before++
					}
					kills++
					_, err = ReadStatus(u.path, nil)
					require.NoError(t, err)
				}
				code, out := u.run()
				assert.Zero(t, code, out)
				assert.Contains(t, out, "version-1 confirmed")
				st, err := ReadStatus(u.path, nil)
				require.NoError(t, err)
				require.Len(t, st.Rejected, 1, after)
			}
			t.Logf("%d kills of the whole group, %d of them before Begin returned", kills, before)
		})
	}
}

// killed starts the program and kills its group after that time, or, at -1, once it
// has begun or ended. It reports whether it was killed before Begin returned.
func (u *unit) killed(after time.Duration) (early bool) {
	u.t.Helper()
	cmd, out := u.start()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if after >= 0 {
		time.Sleep(after)
	}
	for after < 0 && len(ended) == 0 && !strings.Contains(out.String(), "begun") {
		time.Sleep(time.Millisecond)
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	<-ended
	return !strings.Contains(out.String(), "begun")
}

// output is a buffer that may be looked at while a process writes to it.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) { o.mu.Lock(); defer o.mu.Unlock(); return o.b.Write(p) }
func (o *output) String() string              { o.mu.Lock(); defer o.mu.Unlock(); return o.b.String() }

// TestNoStateDirectoryForAnotherUser: a timer of root's beside a program with
// User= made the state directory, and the program could not update itself any more.
func TestNoStateDirectoryForAnotherUser(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "app")
	require.NoError(t, os.WriteFile(target, []byte("#!/bin/sh\n"), 0o755))
	h, err := NewHelper(target, nil)
	require.NoError(t, err)
	require.NoError(t, os.Chown(dir, 65534, -1))
	_, err = h.Tick(t.Context())
	require.NoError(t, err)
	assert.NoDirExists(t, filepath.Join(dir, ".app.d"))
	require.NoError(t, os.Chown(dir, 0, -1)) // the control
	_, err = h.Tick(t.Context())
	require.NoError(t, err)
	assert.DirExists(t, filepath.Join(dir, ".app.d"))
}
