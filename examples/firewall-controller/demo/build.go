//go:build unix

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// build makes three releases of the controller and the operator's command.
func (d *demo) build(ctx context.Context) error {
	dirs, err := output(ctx, ".", "go", "list", "-m", "-f", "{{.Path}} {{.Dir}}", example, module)
	if err != nil {
		return fmt.Errorf("run it in %s: %w", example, err)
	}
	where := map[string]string{}
	for line := range strings.Lines(dirs) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		where[path] = dir
	}
	d.say("")
	d.say("Compiling; the first time takes a minute or two.")
	for _, v := range []string{v0, v1, v2} {
		file := filepath.Join(d.dir, "built-"+v)
		if err := d.compile(ctx, where[example], ".", file, "firewall-controller "+v, "-X main.version="+v); err != nil {
			return err
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		d.releases[v] = release{version: v, data: data, sha256: hex.EncodeToString(sum[:])}
		d.tell("", "%.1f MiB, sha256 %s", float64(len(data))/(1<<20), d.releases[v].sha256)
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	d.cli = filepath.Join(d.dir, "selfupdate")
	return d.compile(ctx, where[module], "./cmd/selfupdate", d.cli, "selfupdate, the operator's command", "")
}

func (d *demo) compile(ctx context.Context, dir, pkg, file, what, ldflags string) error {
	d.tell("go build", "%s", what)
	began := time.Now()
	_, err := output(ctx, dir, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w "+ldflags, "-o", file, pkg)
	if err != nil {
		return err
	}
	if took := time.Since(began); took > 10*time.Second {
		d.tell("", "took %.0f s", took.Seconds())
	}
	return nil
}

// output runs a command without cgo, so that Go alone is enough.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}
