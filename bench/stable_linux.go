package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

// What a start and a good reconcile cost while nothing is on trial, which is nearly
// always. The program that is measured is this one, installed as a target, with a
// record that other updates have left.

const warmUp = 10 // calls that don't count

// callMany is what the installed program does.
func callMany(j job) error {
	call, err := stableCall(j)
	if err != nil {
		return err
	}
	var r result
	for i := range warmUp + j.N {
		if i == warmUp {
			r.CPU, r.Returned = -cpuTime(), -time.Since(started)
		}
		if err := call(); err != nil {
			return err
		}
	}
	r.CPU += cpuTime()
	r.Returned += time.Since(started)
	return json.NewEncoder(os.Stdout).Encode(r)
}

var started = time.Now()

func stableCall(j job) (func() error, error) {
	ctx := context.Background()
	h, err := selfupdate.NewHelper(j.Target, nil)
	if err != nil {
		return nil, err
	}
	u, err := selfupdate.New(selfupdate.Config{Trust: selfupdate.UnsignedChecksum("bench"), Trial: &selfupdate.Trial{}})
	if err != nil {
		return nil, err
	}
	if u.Target() != j.Target {
		return nil, fmt.Errorf("the target is %s, want %s", u.Target(), j.Target)
	}
	switch j.Call {
	case readCall:
		return func() error { return readAndHash(recordOf(j.Target)) }, nil
	case beginCall:
		return func() error { return nothingToDo(u.Begin(ctx)) }, nil
	case confirmCall:
		return func() error { return u.Confirm(ctx) }, nil
	case preCall:
		return func() error { return nothingToDo(h.Pre(ctx)) }, nil
	}
	return nil, fmt.Errorf("no call %q", j.Call)
}

func nothingToDo(s selfupdate.Start, err error) error {
	if err == nil && (s.Restart || s.OnTrial || s.RolledBack) {
		return fmt.Errorf("not stable: %+v", s)
	}
	return err
}

func recordOf(target string) string {
	return filepath.Join(filepath.Dir(target), "."+filepath.Base(target)+".d", "state.json")
}

// readAndHash is the least that whoever looks at a checksummed record has to do.
func readAndHash(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	var buf [16 << 10]byte
	n, err := f.Read(buf[:])
	if err != nil {
		return err
	}
	if sha256.Sum256(buf[:n]) == [sha256.Size]byte{} {
		return errors.New("a sum of zeros")
	}
	return f.Close()
}

// stable prints the table.
func (b bench) stable(ctx context.Context, work string) error {
	fmt.Fprintln(b.out, "\nnothing on trial: what each call costs")
	fmt.Fprintln(b.out, "CPU: user and system; on tmpfs a flush costs nothing. ×: to the first line. The system calls are those of one more call, by strace")
	for _, place := range []struct{ name, dir string }{{"tmpfs", "/dev/shm"}, {fileSystem(work), work}} {
		for _, rejected := range []int{0, 16} {
			if err := b.stableOn(ctx, place.name, place.dir, rejected); err != nil {
				return fmt.Errorf("stable, on %s: %w", place.name, err)
			}
		}
	}
	return b.helperProcess(ctx, work)
}

func (b bench) stableOn(ctx context.Context, place, parent string, rejected int) error {
	dir, err := os.MkdirTemp(parent, "selfreconcile-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	target, err := installSelf(ctx, dir, rejected)
	if err != nil {
		return err
	}
	fi, err := os.Stat(recordOf(target))
	if err != nil {
		return err
	}
	costs := map[string][]result{}
	for round := range b.rounds {
		for i := range stableRows {
			name := stableRows[(i+round)%len(stableRows)]
			r, err := callSelf(ctx, target, name, b.calls, nil)
			if err != nil {
				return err
			}
			costs[name] = append(costs[name], r)
		}
	}
	fmt.Fprintf(b.out, "\non %s, a record of %d bytes with %d rejections, %d calls in each of %d rounds\n", place, fi.Size(), rejected, b.calls, b.rounds)
	w := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tCPU a call\t×\ttime a call\tfiles changed\tsystem calls")
	for _, name := range stableRows {
		t, err := traceSelf(ctx, target, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		cpu := func(r result) float64 { return us(r.CPU) / float64(b.calls) }
		fmt.Fprintf(w, "%s\t%.1f µs\t%.1f\t%.1f µs\t%d\t%d: %s\n", name, median(costs[name], cpu),
			median(costs[name], cpu)/median(costs[readCall], cpu),
			median(costs[name], func(r result) float64 { return us(r.Returned) / float64(b.calls) }), t.changed, t.calls, t.names)
	}
	return w.Flush()
}

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// installSelf makes this program the target of an update, and gives the record
// something to say: an earlier program, and rejections.
func installSelf(ctx context.Context, dir string, rejected int) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	target := filepath.Join(dir, "app")
	if err := os.WriteFile(target, []byte("#!/bin/sh\n"), 0o755); err != nil {
		return "", err
	}
	content, err := os.ReadFile(self)
	if err != nil {
		return "", err
	}
	if err := applyBytes(ctx, target, content, "v1.0.0"); err != nil {
		return "", err
	}
	for i := range rejected {
		if err := applyBytes(ctx, target, fmt.Appendf(nil, "#!/bin/sh\n# %d\n", i), fmt.Sprintf("v1.0.%d", i+1)); err != nil {
			return "", err
		}
		reason := fmt.Sprintf("%d starts, not confirmed: unhealthy: ended without being confirmed", i)
		if _, err := selfupdate.Rollback(ctx, selfupdate.RollbackOptions{Target: target, Reason: reason}); err != nil {
			return "", err
		}
	}
	return target, nil
}

func applyBytes(ctx context.Context, target string, content []byte, version string) error {
	digest, err := checksum.ParseDigest(fmt.Sprintf("sha256:%x", sha256.Sum256(content)))
	if err != nil {
		return err
	}
	_, err = selfupdate.Apply(ctx, bytes.NewReader(content), selfupdate.Options{
		Target: target, Digest: digest, Version: version, AllowAnyFormat: true, AllowOtherProgram: true,
	})
	return err
}

// callSelf runs the installed program, under a tracer if one is given.
func callSelf(ctx context.Context, target, call string, n int, tracer []string) (result, error) {
	b, err := json.Marshal(job{Contender: calling, Call: call, N: n, Target: target})
	if err != nil {
		return result{}, err
	}
	args := append(slices.Clone(tracer), target)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), childVar+"="+string(b))
	return resultOf(cmd)
}

// traced is what one more call asks of the kernel.
type traced struct {
	calls   int
	names   string
	changed int // files and directories that differ, and system calls that change some
}

// traceSelf compares a run with one of more calls. What the runtime does now and
// then is less than once a call, and falls away.
func traceSelf(ctx context.Context, target, call string) (traced, error) {
	const n = 100
	var t traced
	before, err := looksOf(filepath.Dir(target))
	if err != nil {
		return t, err
	}
	few, err := countCalls(ctx, target, call, n)
	if err != nil {
		return t, err
	}
	many, err := countCalls(ctx, target, call, 2*n)
	if err != nil {
		return t, err
	}
	var names []string
	for name := range many {
		if each := (many[name] - few[name] + n/2) / n; each > 0 {
			t.calls += each
			names = append(names, fmt.Sprintf("%d %s", each, name))
		}
		if strings.HasPrefix(name, "!") {
			t.changed += many[name]
		}
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(b, a) })
	t.names = strings.Join(names, ", ")
	after, err := looksOf(filepath.Dir(target))
	if err != nil {
		return t, err
	}
	for path, is := range after {
		if before[path] != is {
			t.changed++
		}
		delete(before, path)
	}
	t.changed += len(before)
	return t, nil
}

var (
	traceLine = regexp.MustCompile(`^\d+ +([a-z0-9_]+)\((.*)`)
	modifies  = regexp.MustCompile(`^(rename|link|symlink|unlink|mkdir|rmdir|mknod|truncate|ftruncate|fallocate|pwrite|chmod|fchmod|chown|fchown|utime|.*setxattr|creat)|^openat.*O_TRUNC`)
	noise     = []string{"futex", "nanosleep", "epoll_pwait", "sched_yield", "tgkill", "rt_sigreturn", "getpid", "madvise", "mmap", "munmap"}
)

// countCalls counts the system calls of a run by name. Those that change a file
// are marked with a "!".
func countCalls(ctx context.Context, target, call string, n int) (map[string]int, error) {
	dir, err := os.MkdirTemp("", "selfreconcile-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "trace")
	if _, err := callSelf(ctx, target, call, n, []string{"strace", "-f", "-qq", "-s", "0", "-o", file}); err != nil {
		return nil, err
	}
	trace, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	counted := map[string]int{}
	for line := range strings.Lines(string(trace)) {
		m := traceLine.FindStringSubmatch(line)
		if m == nil || slices.Contains(noise, m[1]) {
			continue // a signal, or the second half of a call
		}
		name := m[1]
		if modifies.MatchString(name + "(" + m[2]) {
			name = "!" + name
		}
		counted[name]++
	}
	return counted, nil
}

// looksOf says of each file below dir what would differ if it were written or replaced.
func looksOf(dir string) (map[string]string, error) {
	looks := map[string]string{}
	return looks, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		looks[path] = identity(fi)
		return nil
	})
}

// helperProcess measures `selfupdate-guard pre` as a unit runs it.
func (b bench) helperProcess(ctx context.Context, work string) error {
	guard, hello := filepath.Join(work, "selfupdate-guard"), filepath.Join(work, "hello")
	if err := build(ctx, guard, "github.com/metal-stack/selfreconcile/cmd/selfupdate-guard"); err != nil {
		return err
	}
	main := filepath.Join(work, "hello.go")
	if err := os.WriteFile(main, []byte("package main\n\nfunc main() { print(\"hello\\n\") }\n"), 0o644); err != nil {
		return err
	}
	if err := build(ctx, hello, main); err != nil {
		return err
	}
	fmt.Fprintf(b.out, "\na process of its own before each start, %d rounds\n", 10*b.rounds)
	w := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\ttime\t×\tCPU")
	for _, place := range []struct{ name, dir string }{{"tmpfs", "/dev/shm"}, {fileSystem(work), work}} {
		dir, err := os.MkdirTemp(place.dir, "selfreconcile-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		target, err := installSelf(ctx, dir, 0)
		if err != nil {
			return err
		}
		both := map[string][]result{}
		for range 10 * b.rounds {
			for name, args := range map[string][]string{"hello world in Go": {hello}, "selfupdate-guard pre": {guard, "pre", "--target", target}} {
				r, err := timeProcess(ctx, args)
				if err != nil {
					return err
				}
				both[name] = append(both[name], r)
			}
		}
		returned := func(r result) float64 { return ms(r.Returned) }
		floor := median(both["hello world in Go"], returned)
		for _, name := range []string{"hello world in Go", "selfupdate-guard pre"} {
			m := median(both[name], returned)
			fmt.Fprintf(w, "%s, on %s\t%.2f ms\t%.1f\t%.2f ms\n", name, place.name, m, m/floor, median(both[name], func(r result) float64 { return ms(r.CPU) }))
		}
	}
	return w.Flush()
}

func build(ctx context.Context, to, what string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", to, what)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", what, err, out)
	}
	return nil
}

func timeProcess(ctx context.Context, args []string) (result, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var stderr io.Writer = new(bytes.Buffer)
	cmd.Stderr = stderr
	start := time.Now()
	err := cmd.Run()
	r := result{Returned: time.Since(start)}
	if err != nil {
		return r, fmt.Errorf("%s: %w: %s", args[0], err, stderr)
	}
	r.CPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return r, nil
}
