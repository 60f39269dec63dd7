// Bench updates a program over loopback in several ways, in turn within one run,
// and prints what each costs: ours, minio/selfupdate, and the plainest update that
// is still safe (see reference). Read the ratios to the reference; the times belong
// to one machine and one day. Two more tables, on Linux: what a start and a good
// reconcile cost while nothing is on trial, and, with -powercut, what is left of
// each kind of update when the power is cut during or after it.
//
// Each update runs in a process of its own, on files of a directory of its own,
// against a server in another process. Every update is a real one: two different
// programs take turns. What was written is flushed to the disk before the next
// one starts, so that nobody pays for another's writes.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

func main() {
	if isChild() {
		os.Exit(childMain())
	}
	b := bench{out: os.Stdout, samples: 12, later: []time.Duration{time.Second, 5 * time.Second}, disks: disks}
	sizes := flag.String("sizes", "8,64,256", "sizes of the program in `MiB`")
	flag.IntVar(&b.rounds, "rounds", 7, "rounds; medians are printed")
	flag.IntVar(&b.calls, "calls", 2000, "calls of Begin, Confirm and Pre in a round")
	only := flag.String("only", "", "one `table` only: apply, stable or powercut; by default apply and stable")
	flag.BoolFunc("powercut", "as -only powercut (needs root)", func(string) error { *only = "powercut"; return nil })
	flag.StringVar(&b.dir, "dir", os.TempDir(), "`directory` for the files; its file system is part of what is measured")
	flag.StringVar(&b.profile, "cpuprofile", "", "write the CPU profile of the last update of ours to this `file`")
	flag.Parse()
	for s := range strings.SplitSeq(*sizes, ",") {
		mib, err := strconv.ParseFloat(s, 64)
		if err != nil || mib < 4 {
			fmt.Fprintf(os.Stderr, "bench: size %q: want a number of MiB from 4 up\n", s)
			os.Exit(2)
		}
		b.sizes = append(b.sizes, int64(mib*(1<<20)))
	}
	switch *only {
	case "":
		b.tables = []string{applyTable, stableTable}
	case applyTable, stableTable, powercutTable:
		b.tables = []string{*only}
	default:
		fmt.Fprintf(os.Stderr, "bench: no table %q\n", *only)
		os.Exit(2)
	}
	if b.profile != "" {
		b.profile, _ = filepath.Abs(b.profile)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := b.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// The tables that can be asked for.
const (
	applyTable    = "apply"    // what an update costs
	stableTable   = "stable"   // what a start and a reconcile cost while nothing is on trial
	powercutTable = "powercut" // what is left of an update after the power was cut
)

// What a program calls while nothing is on trial. The first one is what the others
// are compared with.
const (
	readCall    = "read and hash the record"
	beginCall   = "Begin"
	confirmCall = "Confirm"
	preCall     = "Helper.Pre"
)

var stableRows = []string{readCall, beginCall, confirmCall, preCall}

// A disk is a kind of file system that does not hide a missing fsync. ext4's
// default flushes a file that is renamed over another; not all have that.
type disk struct {
	Name    string
	Mkfs    []string
	Options string
}

var disks = []disk{
	{"ext4, noauto_da_alloc", []string{"mkfs.ext4", "-q", "-F"}, "loop,noauto_da_alloc"},
	{"xfs", []string{"mkfs.xfs", "-q", "-f"}, "loop"},
}

type bench struct {
	tables  []string
	sizes   []int64
	rounds  int
	calls   int // of what is cheap, in a round
	dir     string
	profile string
	samples int             // instants during an update at which the power is cut
	later   []time.Duration // after it
	disks   []disk
	out     io.Writer
}

// idle is the name under which a program that does nothing takes part: the floor
// of the memory.
const idle = "idle Go program"

func (b bench) run(ctx context.Context) error {
	work, err := os.MkdirTemp(b.dir, "selfreconcile-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	fmt.Fprintf(b.out, "%s/%s, %d CPUs, %s, %s, %d rounds\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), fileSystem(work), b.rounds)
	for _, table := range b.tables {
		print := map[string]func(context.Context, string) error{applyTable: b.apply, stableTable: b.stable, powercutTable: b.powercut}[table]
		if err := print(ctx, work); err != nil {
			return err
		}
	}
	return nil
}

func (b bench) apply(ctx context.Context, work string) error {
	seed, err := buildSeed(ctx, work)
	if err != nil {
		return err
	}
	fmt.Fprintln(b.out, "\ndurable:  until the new program is the target and would survive a power cut (what the update did not flush is flushed here)")
	fmt.Fprintln(b.out, "returned: until the update returned")
	fmt.Fprintln(b.out, "×:        the median of the ratios to the reference of the same round")
	for _, size := range b.sizes {
		files, err := makePrograms(work, seed, size)
		if err != nil {
			return err
		}
		measured, err := b.measure(ctx, work, files)
		if err != nil {
			return err
		}
		b.print(size, measured)
		for _, f := range files {
			if err := os.Remove(f.path); err != nil {
				return err
			}
		}
	}
	return nil
}

// measure runs all contenders, round after round, each time starting with
// another one.
func (b bench) measure(ctx context.Context, work string, files [2]program) (map[string][]result, error) {
	srv, err := startServer(ctx, work)
	if err != nil {
		return nil, err
	}
	defer srv.stop()

	measured := map[string][]result{}
	for round := range b.rounds {
		old, next := files[round%2], files[(round+1)%2]
		for i := range contenders {
			c := contenders[(i+round)%len(contenders)]
			r, err := b.once(ctx, work, c, old, next, srv.url)
			if err != nil {
				return nil, fmt.Errorf("%s, %d MiB: %w", c.name, next.size>>20, err)
			}
			measured[c.name] = append(measured[c.name], r)
		}
		r, err := runIdle(ctx, work)
		if err != nil {
			return nil, err
		}
		measured[idle] = append(measured[idle], r)
	}
	return measured, nil
}

// once lays the old program down, updates it in a child process and checks that
// the new one is there.
func (b bench) once(ctx context.Context, work string, c contender, old, next program, url string) (result, error) {
	dir, err := os.MkdirTemp(work, "target-")
	if err != nil {
		return result{}, err
	}
	defer os.RemoveAll(dir)
	target := filepath.Join(dir, "program")
	j := job{Target: target, Profile: b.profile}
	if c.before {
		// An update of a program that was installed by the same means, as all but
		// the first one are.
		if err := copyFile(old.seed, target); err != nil {
			return result{}, err
		}
		j.Contender = ours
		j.URL, j.Version, j.Digest = url+"/"+filepath.Base(old.path), "v1", old.digest
		if _, err := runChild(ctx, j); err != nil {
			return result{}, fmt.Errorf("before: %w", err)
		}
	} else if err := copyFile(old.path, target); err != nil {
		return result{}, err
	}
	settle()
	j.Contender = c.name
	j.URL, j.Version, j.Digest = url+"/"+filepath.Base(next.path), "v2", next.digest
	r, err := runChild(ctx, j)
	if err != nil {
		return result{}, err
	}
	if got, err := digestOf(target); err != nil || got != next.digest {
		return result{}, fmt.Errorf("the target is %s, want %s (%v)", got, next.digest, err)
	}
	return r, nil
}

func (b bench) print(size int64, measured map[string][]result) {
	fmt.Fprintf(b.out, "\n%d MiB\n", size>>20)
	w := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tdurable\t×\treturned\t×\tCPU\t×\tpeak memory\tover idle\t")
	floor := median(measured[idle], func(r result) float64 { return float64(r.Peak) })
	reference := measured[contenders[0].name]
	for _, c := range contenders {
		rs := measured[c.name]
		fmt.Fprintf(w, "%s\t", c.name)
		for _, figure := range []func(result) float64{
			func(r result) float64 { return ms(r.Durable) },
			func(r result) float64 { return ms(r.Returned) },
			func(r result) float64 { return ms(r.CPU) },
		} {
			ratios := make([]float64, len(rs))
			for i := range rs {
				ratios[i] = figure(rs[i]) / figure(reference[i])
			}
			fmt.Fprintf(w, "%.0f ms\t%.2f\t", median(rs, figure), median(ratios, func(r float64) float64 { return r }))
		}
		peak := median(rs, func(r result) float64 { return float64(r.Peak) })
		fmt.Fprintf(w, "%.1f MiB\t%.1f MiB\t\n", mib(peak), mib(peak-floor))
	}
	fmt.Fprintf(w, "%s\t\t\t\t\t\t\t%.1f MiB\t\t\n", idle, mib(floor))
	w.Flush()
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func mib(bytes float64) float64 { return bytes / (1 << 20) }

func median[T any](list []T, figure func(T) float64) float64 {
	figures := make([]float64, len(list))
	for i, v := range list {
		figures[i] = figure(v)
	}
	slices.SortFunc(figures, cmp.Compare)
	n := len(figures)
	if n == 0 {
		return 0
	}
	return (figures[(n-1)/2] + figures[n/2]) / 2
}
