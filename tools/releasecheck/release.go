package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// release is what is published under one version: name of the asset → file.
type release struct {
	version string
	commit  string
	files   map[string]string
}

// The files of a release that are about the others.
const (
	sums      = "checksums.txt"
	signature = sums + ".minisig"
)

// released is which program is released for what.
var released = func() []string {
	linux := []string{"linux-amd64", "linux-arm64"}
	all := slices.Concat(linux, []string{"darwin-amd64", "darwin-arm64", "windows-amd64.exe", "windows-arm64.exe"})
	var names []string
	for program, platforms := range map[string][]string{"selfupdate": all, "firewall-controller": all, "selfupdate-guard": linux} {
		for _, p := range platforms {
			names = append(names, program+"-"+p)
		}
	}
	return names
}()

// readDist reads goreleaser's lists of what it made. The list of artifacts has each
// program twice, as built and as published; the sidecars come from a hook and are
// not in it.
func readDist(dist string) (release, error) {
	var meta struct {
		Version string `json:"version"`
		Commit  string `json:"commit"`
	}
	if err := readJSON(filepath.Join(dist, "metadata.json"), &meta); err != nil {
		return release{}, err
	}
	var artifacts []struct {
		Name  string `json:"name"`
		Path  string `json:"path"`
		Type  string `json:"type"`
		Extra struct{ Format string }
	}
	if err := readJSON(filepath.Join(dist, "artifacts.json"), &artifacts); err != nil {
		return release{}, err
	}
	rel := release{version: "v" + meta.Version, commit: meta.Commit, files: map[string]string{}}
	root := filepath.Dir(dist) // the paths in the list are relative to the work tree
	for _, a := range artifacts {
		if a.Extra.Format == "binary" || a.Type == "Checksum" || a.Type == "Signature" {
			rel.files[a.Name] = filepath.Join(root, a.Path)
		}
	}
	sidecars, err := filepath.Glob(filepath.Join(dist, "sidecars", "*.sha256"))
	if err != nil {
		return release{}, err
	}
	for _, s := range sidecars {
		rel.files[filepath.Base(s)] = s
	}
	for name, file := range rel.files {
		if rel.files[name], err = filepath.Abs(file); err != nil {
			return release{}, err
		}
	}
	return rel, nil
}

// complete checks that every program is there for every platform, listed in
// checksums.txt and in a sidecar, and that nothing else is listed.
func (r release) complete() error {
	list, err := os.ReadFile(r.files[sums])
	if err != nil {
		return fmt.Errorf("checksums.txt: %w", err)
	}
	want := map[string]bool{}
	for _, name := range released {
		digest, err := digestOf(r.files[name])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		line := digest + "  " + name + "\n"
		if !bytes.Contains(list, []byte(line)) {
			return fmt.Errorf("checksums.txt does not list %s as %s", name, digest)
		}
		sidecar, err := os.ReadFile(r.files[name+".sha256"])
		if err != nil {
			return fmt.Errorf("%s.sha256: %w", name, err)
		}
		if string(sidecar) != line {
			return fmt.Errorf("%s.sha256 holds %q, want %q", name, sidecar, line)
		}
		want[name], want[name+".sha256"] = true, true
	}
	for _, name := range []string{sums, signature} {
		if _, err := os.Stat(r.files[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		want[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(r.files)) {
		if !want[name] {
			return fmt.Errorf("%s is released, but nobody asked for it", name)
		}
	}
	if lines := bytes.Count(list, []byte("\n")); lines != len(released) {
		return fmt.Errorf("checksums.txt has %d lines, want %d", lines, len(released))
	}
	return nil
}

// reproduce builds two of the released programs again, from a clone in another
// directory, and compares the bytes.
func reproduce(ctx context.Context, repository string, r release) error {
	status, err := exec.CommandContext(ctx, "git", "-C", repository, "status", "--porcelain").Output()
	if err != nil {
		return fmt.Errorf("git status: %w", err)
	}
	if len(status) > 0 {
		fmt.Println("not built again: the work tree has changes that no clone would have")
		return nil
	}
	commit := r.commit
	if commit == "none" { // goreleaser's word in a repository without a remote
		commit = "HEAD"
	}
	work, err := os.MkdirTemp("", "reproduce-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	clone := filepath.Join(work, "another", "place")
	if err := command(ctx, "", "git", "clone", "--quiet", "--no-local", repository, clone); err != nil {
		return err
	}
	if err := command(ctx, clone, "git", "checkout", "--quiet", commit); err != nil {
		return err
	}
	for program, dir := range map[string]string{"selfupdate": "cmd/selfupdate", "firewall-controller": "examples/firewall-controller"} {
		for _, platform := range []string{"linux-amd64", "windows-arm64.exe"} {
			goos, goarch, _ := strings.Cut(strings.TrimSuffix(platform, ".exe"), "-")
			again := filepath.Join(work, program)
			if err := build(ctx, clone, dir, again, r.version, "GOFLAGS=-buildvcs=true", "GOOS="+goos, "GOARCH="+goarch); err != nil {
				return err
			}
			a, err := digestOf(r.files[program+"-"+platform])
			if err != nil {
				return err
			}
			b, err := digestOf(again)
			if err != nil {
				return err
			}
			if a != b {
				return fmt.Errorf("%s-%s is not reproducible: released %s, built again %s", program, platform, a, b)
			}
			fmt.Printf("%s-%s: the same bytes when built again in another directory\n", program, platform)
		}
	}
	return nil
}

// build makes a program the way .goreleaser.yaml does.
func build(ctx context.Context, repository, dir, output, version string, env ...string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath",
		"-ldflags", "-s -w -buildid= -X main.version="+version, "-o", output, ".")
	cmd.Dir = filepath.Join(repository, filepath.FromSlash(dir))
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", dir, err, out)
	}
	return nil
}

func command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
}

func readJSON(file string, v any) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

func digestOf(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}
