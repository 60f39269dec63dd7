package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// program is one of the files that are served.
type program struct {
	path   string
	seed   string // the small Go program that it starts with
	size   int64
	digest string // SHA-256, hex
}

// The seed is a program for this machine with a Go module's build info, because an
// updater may look; it is also the idle program: it says how much memory it took.
const seedSource = `package main

import (
	"os"
	"time"
)

func main() {
	time.Sleep(10 * time.Millisecond)
	b := make([]byte, 4096)
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return
	}
	n, _ := f.Read(b)
	os.Stdout.Write(b[:n])
}
`

func buildSeed(ctx context.Context, work string) (string, error) {
	dir := filepath.Join(work, "seed")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.org/program\n\ngo 1.26\n"), 0o644); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(seedSource), 0o644); err != nil {
		return "", err
	}
	name := "program"
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", name, ".")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program to serve: %w\n%s", err, out)
	}
	return filepath.Join(dir, name), nil
}

// makePrograms makes two programs of a size: the seed, and behind it bytes that
// don't compress and differ.
func makePrograms(work, seed string, size int64) ([2]program, error) {
	var made [2]program
	for i := range made {
		p := program{path: filepath.Join(work, fmt.Sprintf("program-%d-%d", size, i)), seed: seed, size: size}
		if err := p.write(byte(i)); err != nil {
			return made, err
		}
		var err error
		if p.digest, err = digestOf(p.path); err != nil {
			return made, err
		}
		made[i] = p
	}
	return made, nil
}

func (p program) write(variant byte) (err error) {
	if err := copyFile(p.seed, p.path); err != nil {
		return err
	}
	f, err := os.OpenFile(p.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer func() { err = first(err, f.Close()) }()
	start, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if start > p.size {
		return fmt.Errorf("a program of %d bytes can't be made: the smallest has %d", p.size, start)
	}
	_, err = io.CopyN(f, rand.NewChaCha8([32]byte{variant}), p.size-start)
	return err
}

// first returns the first error that is one.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) (err error) {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return first(err, w.Close())
}

func digestOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
