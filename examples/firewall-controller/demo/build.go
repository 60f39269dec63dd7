//go:build unix

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

const (
	module  = "github.com/metal-stack/selfreconcile"
	example = module + "/examples/firewall-controller"
)

// release is one published version of the controller.
type release struct {
	version string
	data    []byte
	sha256  string
}

// kind is how a release differs from the source beside this demo.
type kind struct {
	version string
	what    string
	goarch  string // "" is this machine's
	patches []patch
	alone   string // the whole source, instead
}

// patch replaces old, which is there once, by new in a file of the example's source;
// with old "" it adds the file.
type patch struct{ file, old, new string }

// The broken ones are what a bad commit makes of the real controller: the source on
// disk stays what it is (go build -overlay).
func kinds() []kind {
	const unreachable = `errors.New("dial tcp 192.0.2.1:6443: connect: connection refused")`
	const file = "internal/firewall/file.go"
	cut := func(signature, result string) patch {
		return patch{file, signature, signature + "\n\treturn " + result + unreachable}
	}
	other := "arm64"
	if runtime.GOARCH == other {
		other = "amd64"
	}
	return []kind{
		{version: v0, what: "good"},
		{version: v1, what: "good"},
		{version: v2, what: "does not reach its API", patches: []patch{
			cut("func (f *File) Spec(context.Context) (Spec, error) {", "Spec{}, "),
			cut("func (f *File) SetStatus(_ context.Context, s Status) error {", ""),
			cut("func (f *File) Emit(_ context.Context, e Event) error {", ""),
		}},
		{version: v3, what: "crashes in an init function, but for -v", patches: []patch{
			{"crash.go", "", "package main\n\nimport \"os\"\n\nvar registry map[string]int\n\nfunc init() {\n\tif len(os.Args) > 2 {\n\t\tregistry[os.Args[2]]++\n\t}\n}\n"},
		}},
		// It is refused by its header: that of a small program is as good, and compiled
		// without the whole of the standard library for another machine.
		{version: v4, what: "built for " + other, goarch: other, alone: "package main\n\nvar version string\n\nfunc main() { println(version) }\n"},
		{version: v5, what: "good"},
	}
}

// build makes the releases of the controller and the operator's command.
func (d *demo) build(ctx context.Context) error {
	dirs, err := output(ctx, ".", nil, "go", "list", "-m", "-f", "{{.Path}} {{.Dir}}", example, module)
	if err != nil {
		return fmt.Errorf("run it in %s: %w", example, err)
	}
	where := map[string]string{}
	for line := range strings.Lines(dirs) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		where[path] = dir
	}
	d.say("")
	d.say("Compiling six versions, three of them broken, and the operator's command.")
	d.cli = filepath.Join(d.dir, "selfupdate")
	all := kinds()
	jobs := []func() error{func() error {
		return d.compile(ctx, where[module], "selfupdate, the operator's command", "", "-o", d.cli, "./cmd/selfupdate")
	}}
	for _, k := range all[1:] {
		jobs = append(jobs, func() error { return d.release(ctx, where[example], k) })
	}
	if err := d.release(ctx, where[example], all[0]); err != nil { // the others find its packages in the cache
		return err
	}
	return together(jobs)
}

// together does the jobs, as many at a time as there are processors: most of a build
// is the linker, which uses one.
func together(jobs []func() error) error {
	var all sync.WaitGroup
	errs := make([]error, len(jobs))
	room := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, job := range jobs {
		room <- struct{}{}
		all.Go(func() {
			errs[i] = job()
			<-room
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// release builds one version from the source in dir.
func (d *demo) release(ctx context.Context, dir string, k kind) error {
	file := filepath.Join(d.dir, "built-"+k.version)
	args := []string{"-ldflags", "-s -w -X main.version=" + k.version, "-o", file}
	if k.alone != "" {
		source := filepath.Join(d.dir, k.version+".go")
		if err := os.WriteFile(source, []byte(k.alone), 0o600); err != nil {
			return err
		}
		args = append(args, source)
	} else {
		overlay, err := d.overlay(dir, k)
		if err != nil {
			return err
		}
		args = append(args, "-overlay", overlay, ".")
	}
	if err := d.compile(ctx, dir, k.version+", "+k.what, k.goarch, args...); err != nil {
		return err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	d.building.Lock()
	defer d.building.Unlock()
	d.releases[k.version] = release{version: k.version, data: data, sha256: hex.EncodeToString(sum[:])}
	return os.Remove(file)
}

// overlay writes what differs and returns the file that go build wants.
func (d *demo) overlay(dir string, k kind) (string, error) {
	sources := map[string]string{}
	for _, p := range k.patches {
		path := filepath.Join(dir, p.file)
		if sources[path] == "" && p.old != "" {
			data, err := os.ReadFile(path)
			if err != nil {
				return "", err
			}
			sources[path] = string(data)
		}
		if p.old != "" && strings.Count(sources[path], p.old) != 1 {
			return "", fmt.Errorf("%s: %q is not there once", path, p.old)
		}
		if p.old == "" {
			sources[path] = p.new
		} else {
			sources[path] = strings.Replace(sources[path], p.old, p.new, 1)
		}
	}
	replace := map[string]string{}
	for path, text := range sources {
		replace[path] = filepath.Join(d.dir, k.version+"-"+filepath.Base(path))
		if err := os.WriteFile(replace[path], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(d.dir, k.version+"-overlay.json")
	return file, os.WriteFile(file, data, 0o600)
}

func (d *demo) compile(ctx context.Context, dir, what, goarch string, args ...string) error {
	began := time.Now()
	var env []string
	if goarch != "" {
		env = []string{"GOARCH=" + goarch}
	}
	// Flags as plain as those of "go run" share what that compiled.
	args = append([]string{"build", "-buildvcs=false"}, args...)
	if _, err := output(ctx, dir, env, "go", args...); err != nil {
		return err
	}
	d.detail("go build", "%s: %.1f s", what, time.Since(began).Seconds())
	return nil
}

// output runs a command.
func output(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}
