// Mutate breaks the protocol of a trial in one way after the other and shows that
// a test of package selfupdate fails for each. The files stay as they are: each
// broken one is compiled in the place of its original by the go command's -overlay.
//
//	mutate [-only REGEXP] [-jobs N]
//
// For each mutation the tests that should see it run first; when they don't, all
// the others do. A mutation that no test sees is an error.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

func main() {
	only := flag.String("only", "", "the mutations whose names match `REGEXP`")
	jobs := flag.Int("jobs", 2, "mutations at once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *only, *jobs); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// wide are the tests that run when the cheap ones saw nothing: all but those that
// need a network or a file system of their own, and are slow.
const wide = "Trial|LostWrites|KilledAnywhere|OperationFails|Properties|Rollback|Mutant|Tick|Restart|ByHand|Apply|Order|Record|Quiet|Pre|HeldBack|Outcome|Clear|Status"

func run(ctx context.Context, only string, jobs int) error {
	match, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	pkg, err := packageDir()
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	b := bench{pkg: pkg, work: work}
	if err := b.control(ctx); err != nil {
		return err
	}

	slots := make(chan struct{}, jobs)
	var wait sync.WaitGroup
	var mu sync.Mutex
	var survivors []string
	var errs []error
	all := 0
	for _, m := range mutations {
		if !match.MatchString(m.name) {
			continue
		}
		all++
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			start := time.Now()
			by, err := b.try(ctx, m)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				errs = append(errs, fmt.Errorf("%s: %w", m.name, err))
			case by == "":
				survivors = append(survivors, m.name)
				by = "SURVIVED"
			}
			if err == nil {
				fmt.Printf("%-28s %-12s %4.0f s  %s\n", m.name, m.file, time.Since(start).Seconds(), by)
			}
		})
	}
	wait.Wait()
	fmt.Printf("%d mutations, %d caught\n", all, all-len(survivors)-len(errs))
	if len(survivors) > 0 {
		errs = append(errs, fmt.Errorf("no test sees %s", strings.Join(survivors, ", ")))
	}
	return errors.Join(errs...)
}

// packageDir returns the directory of package selfupdate.
func packageDir() (string, error) {
	for _, dir := range []string{"../selfupdate", "../../selfupdate", "selfupdate"} {
		if _, err := os.Stat(filepath.Join(dir, "trial.go")); err == nil {
			return filepath.Abs(dir)
		}
	}
	return "", errors.New("run it in the directory tools: ../selfupdate is not there")
}

type bench struct{ pkg, work string }

// control runs the tests of all mutations on the code as it is: they have to pass.
func (b bench) control(ctx context.Context) error {
	start := time.Now()
	exe, err := b.build(ctx, "control", "")
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	var tests []string
	for _, m := range mutations {
		if !seen[m.tests] {
			seen[m.tests] = true
			tests = append(tests, m.tests)
		}
	}
	failed, err := b.test(ctx, exe, strings.Join(tests, "|"))
	if err != nil {
		return err
	}
	if failed != "" {
		return fmt.Errorf("%s fails without any mutation", failed)
	}
	fmt.Printf("%-28s %-12s %4.0f s  no test fails\n", "(none)", "", time.Since(start).Seconds())
	return nil
}

// try returns the first test that fails with m, or "".
func (b bench) try(ctx context.Context, m mutation) (string, error) {
	broken, err := m.apply(b.pkg)
	if err != nil {
		return "", err
	}
	copied := filepath.Join(b.work, m.name+".go")
	if err := os.WriteFile(copied, broken, 0o600); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(b.pkg, m.file): copied}})
	if err != nil {
		return "", err
	}
	overlaid := filepath.Join(b.work, m.name+".json")
	if err := os.WriteFile(overlaid, overlay, 0o600); err != nil {
		return "", err
	}
	exe, err := b.build(ctx, m.name, overlaid)
	if err != nil {
		return "", err
	}
	defer os.Remove(exe)
	for _, tests := range []string{m.tests, wide, "."} {
		by, err := b.test(ctx, exe, tests)
		if by != "" || err != nil {
			return by, err
		}
	}
	return "", nil
}

// build compiles the tests with an overlay, if one is given.
func (b bench) build(ctx context.Context, name, overlay string) (string, error) {
	exe := filepath.Join(b.work, name+".test")
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-ldflags=-s -w", "-overlay="+overlay, "-o", exe, ".")
	cmd.Dir = b.pkg
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("it does not compile: %w\n%s", err, out)
	}
	return exe, nil
}

var failure = regexp.MustCompile(`(?m)^ *--- FAIL: (\S+)|^panic: (.*)`)

// test returns the name of the first test that fails, the innermost, or "".
func (b bench) test(ctx context.Context, exe, tests string) (string, error) {
	cmd := exec.CommandContext(ctx, exe, "-test.run="+tests, "-test.failfast", "-test.timeout=10m")
	cmd.Dir = b.pkg
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if bytes.Contains(out, []byte("no tests to run")) {
		return "", fmt.Errorf("no test matches %q", tests)
	}
	if err == nil {
		return "", nil
	}
	found := ""
	for _, m := range failure.FindAllSubmatch(out, -1) {
		if name := string(m[1]) + string(m[2]); found == "" || strings.HasPrefix(name, found+"/") {
			found = name
		}
	}
	if found == "" {
		return "", fmt.Errorf("the tests ended without a verdict: %w\n%s", err, out)
	}
	return found, nil
}

// apply returns the broken file.
func (m mutation) apply(pkg string) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(pkg, m.file))
	if err != nil {
		return nil, err
	}
	s := string(b)
	for _, e := range m.edits {
		if n := strings.Count(s, e.old); n != 1 {
			return nil, fmt.Errorf("%s has %d times what is to be replaced, want 1:\n%s", m.file, n, e.old)
		}
		s = strings.Replace(s, e.old, e.new, 1)
	}
	if _, err := parser.ParseFile(token.NewFileSet(), m.file, s, 0); err != nil {
		return nil, err
	}
	return []byte(s), nil
}
