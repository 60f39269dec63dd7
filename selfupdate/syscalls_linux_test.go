package selfupdate

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fileCalls are the system calls that this package makes on files.
const fileCalls = "openat,openat2,read,pread64,write,close,fsync,fallocate,sync_file_range,flock,fstat,newfstatat,statx,statfs," +
	"getdents64,readlinkat,link,linkat,rename,renameat,renameat2,unlink,unlinkat,mkdirat,fchmod,fchown,fgetxattr,fsetxattr,fremovexattr,getxattr,lgetxattr"

// changingCalls are those of them that change something on disk, fsync aside.
var changingCalls = regexp.MustCompile(`^\d+ +(write|fallocate|link|linkat|rename|renameat|renameat2|unlink|unlinkat|mkdirat|fchmod|fchown|fsetxattr|fremovexattr|openat\(.*O_(CREAT|TRUNC|WRONLY))\b`)

// A call is one system call of a traced child: the nth of its name.
type call struct {
	name, line string
	nth        int
}

// strace runs the operation as a real process under strace and returns its file
// system calls below the target's directory. inject may be "".
func (o operation) strace(t testing.TB, r *rig, inject string) (calls []call, code int) {
	t.Helper()
	trace := filepath.Join(t.TempDir(), "trace")
	child := childCommand("trial", o.name, r.path, r.clock.boot, fmt.Sprint(int64(r.clock.mono)))
	args := []string{"-f", "-qq", "-y", "-s", "300", "-o", trace, "-e", "trace=" + fileCalls}
	if inject != "" {
		args = append(args, "-e", "inject="+inject)
	}
	cmd := exec.Command("strace", append(args, child.Path)...)
	cmd.Env = child.Env
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("this test needs strace (apt-get install strace): %v", err)
	}
	code = cmd.ProcessState.ExitCode()
	require.True(t, inject != "" || code == 0, "%s: %s", o.name, out)
	return callsBelow(t, trace, filepath.Dir(r.path)), code
}

func callsBelow(t testing.TB, trace, dir string) (calls []call) {
	t.Helper()
	f, err := os.Open(trace)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	of, main, seen := regexp.MustCompile(`^(\d+) +(\w+)\(`), "", map[string]int{}
	rest := regexp.MustCompile(`^(\d+) +<\.\.\. \w+ resumed>(.*)`)
	open := -1 // the call that was interrupted by another thread's line
	for lines.Scan() {
		if m := rest.FindStringSubmatch(lines.Text()); m != nil && m[1] == main && open >= 0 {
			calls[open].line = strings.TrimSuffix(calls[open].line, " <unfinished ...>") + m[2]
		}
		m := of.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		if main == "" {
			main = m[1]
		}
		if m[1] != main {
			if !strings.Contains(lines.Text(), "<unfinished") && !strings.HasSuffix(lines.Text(), "= ?") { // at a kill, that of the first is said of others too
				assert.NotContains(t, lines.Text(), dir, "a file operation of another thread")
			}
			continue
		}
		seen[m[2]]++
		open = -1
		if strings.Contains(lines.Text(), dir) {
			calls = append(calls, call{m[2], wholePaths(lines.Text()), seen[m[2]]})
			open = len(calls) - 1
		}
	}
	require.NoError(t, lines.Err())
	return calls
}

// faults are what happens at a system call: the process is killed before it, or it fails.
var faults = []string{"signal=KILL", "error=EIO", "error=ENOSPC", "error=EROFS"}

// TestTrialEverySystemCall hits a real process at each file system call of each
// operation of the trial: it is killed before it (which is after the one before), or
// the call fails. Then the invariants must hold, and the program is started until it
// is stable. In the short form at a few calls of each.
func TestTrialEverySystemCall(t *testing.T) {
	for i, o := range operations {
		if o.seam {
			continue
		}
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			r := rigAt(t, installedIn(t, memory(t), "s1"), system())
			o.prepare(r)
			calls, _ := o.strace(t, r, "")
			o.check(t, r, nil, false, true, "without a fault")
			require.NotEmpty(t, calls)
			points := map[string]int{}
			for n, c := range calls {
				for k, fault := range faults {
					few := 12
					if raceEnabled { // a child of that kind takes a second to start
						few = 3
					}
					if stride := max(1, len(calls)/few); !long() && ((n+i)%stride != 0 || (n/stride+i)%len(faults) != k) {
						continue
					}
					o.hitAt(t, c, fault, n%2 == 0)
					points[fault]++
				}
			}
			t.Logf("%d system calls; %d kills, %d EIO, %d ENOSPC, %d EROFS, 0 broken", len(calls),
				points[faults[0]], points[faults[1]], points[faults[2]], points[faults[3]])
		})
	}
}

// hitAt runs o with a fault at one system call.
func (o operation) hitAt(t *testing.T, c call, fault string, well bool) {
	dir := memory(t)
	defer func() { _ = os.RemoveAll(dir) }()
	r := rigAt(t, installedIn(t, dir, "s1"), system())
	o.prepare(r)
	name := fmt.Sprintf("%s at %s number %d: %s", fault, c.name, c.nth, c.line)
	hit, code := o.strace(t, r, fmt.Sprintf("%s:%s:when=%d", c.name, fault, c.nth))
	var err error
	if code != 0 {
		err = fmt.Errorf("exit code %d", code)
	}
	if fault == faults[0] {
		require.Equal(t, -1, code, "%s: not killed", name)
	} else {
		require.True(t, slices.ContainsFunc(hit, func(c call) bool { return strings.Contains(c.line, "(INJECTED)") }), "%s: not injected", name)
	}
	r.full = strings.Contains(fault, "ENOSPC")
	o.check(t, r, err, true, well, name)
}

// of returns the operation of that name.
func operationOf(t testing.TB, name string) operation {
	t.Helper()
	for _, o := range operations {
		if o.name == name {
			return o
		}
	}
	t.Fatal("no operation ", name)
	return operation{}
}

// TestTrialOrderOfSystemCalls sees from outside that what has to be durable is so
// before what relies on it.
func TestTrialOrderOfSystemCalls(t *testing.T) {
	record := []string{
		`openat\(.*"DIR/\.app\.d/\.tmp-[a-z0-9]+", O_RDWR\|O_CREAT\|O_EXCL`,
		`write\(\d+<DIR/\.app\.d/\.tmp-[a-z0-9]+>, .*RECORD`,
		`fsync\(\d+<DIR/\.app\.d/\.tmp-[a-z0-9]+>\) += 0`,
		`rename.*"DIR/\.app\.d/state\.json"`,
		`fsync\(\d+<DIR/\.app\.d>\) += 0`,
	}
	says := func(what string) (all []string) {
		for _, p := range record {
			all = append(all, strings.ReplaceAll(p, "RECORD", what))
		}
		return all
	}
	swap := []string{`linkat\(.*"DIR/\.app\.d/slots/S2"`, `rename.*\.tmp-[a-z0-9]+".*"DIR/app"`, `fsync\(\d+<DIR>\) += 0`}
	for _, tt := range []struct {
		name   string
		order  [][]string
		writes int // of the record
	}{
		{"apply, the first ever", [][]string{says(`\\"phase\\":\\"trial\\"`), swap}, 1},
		{"pre, first start", [][]string{{`fsync\(\d+<DIR/\.app\.d>\) += 0`, `openat\(.*"DIR/\.app\.d/state\.json"`}, says(""), {`fsync\(\d+<DIR>\) += 0`}}, 1},
		{"pre, the switch did not survive", [][]string{says(""), swap}, 1},
		{"pre, starts exhausted", [][]string{{`rename.*"DIR/\.app\.rollback".*"DIR/app"`, `fsync\(\d+<DIR>\) += 0`}, says(`\\"phase\\":\\"stable\\"`)}, 1},
		{"confirm", [][]string{says(`\\"phase\\":\\"stable\\"`)}, 1},
		{"expire", [][]string{says(`\\"phase\\":\\"trial\\"`)}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := operationOf(t, tt.name)
			r := rigAt(t, installed(t, "s1"), system())
			o.prepare(r)
			calls, _ := o.strace(t, r, "")
			o.done(r, tt.name)
			dir := regexp.QuoteMeta(filepath.Dir(r.path))
			next, writes := 0, 0
			for _, part := range tt.order {
				for _, p := range part {
					re := regexp.MustCompile(strings.NewReplacer("DIR", dir, "S2", digests["s2"].Hex()).Replace(p))
					from := next
					for ; next < len(calls) && !re.MatchString(calls[next].line); next++ {
					}
					require.Less(t, next, len(calls), "no (later) call matches %s; looked at\n%s", p, lines(calls[from:]))
					next++
				}
			}
			for _, c := range calls {
				if strings.HasPrefix(c.name, "rename") && strings.Contains(c.line, "state.json") {
					writes++
				}
			}
			assert.Equal(t, tt.writes, writes, "writes of the record")
		})
	}
}

func lines(calls []call) string {
	var b strings.Builder
	for _, c := range calls {
		b.WriteString(c.line + "\n")
	}
	return b.String()
}

// TestStableWritesNothing: Begin and Confirm of a program that is stable change
// nothing on disk.
func TestStableWritesNothing(t *testing.T) {
	r := rigAt(t, installed(t, "s1"), system())
	u := r.onTrial()
	calls, _ := operation{name: "confirm"}.strace(t, r, "")
	require.NotEmpty(t, changes(calls), "the control: on trial, a confirmation writes")
	require.True(t, u.target.quiet())
	for _, name := range []string{"begin", "confirm"} {
		calls, _ := operation{name: name}.strace(t, r, "")
		assert.NotEmpty(t, calls)
		assert.Empty(t, changes(calls), name)
		t.Logf("%s: %d system calls", name, len(calls))
	}
}

func changes(calls []call) (changing []string) {
	for _, c := range calls {
		if changingCalls.MatchString(c.line) {
			changing = append(changing, c.line)
		}
	}
	return changing
}
