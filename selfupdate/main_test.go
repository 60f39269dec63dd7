package selfupdate

import (
	"bytes"
	"context"
	"crypto/sha512"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/checksum"
)

// programs are real programs for this machine, built once: what is executed must
// not have been written by a process that may still have it open (ETXTBSY).
var programs = map[string]string{}

// contents and digests are those programs read and hashed once.
var (
	contents = map[string][]byte{}
	digests  = map[string]checksum.Digest{}
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	os.Exit(withPrograms(m))
}

func withPrograms(m *testing.M) int {
	dir, err := os.MkdirTemp("", "selfupdate-programs-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Chmod(dir, 0o755); err != nil { // also for another uid
		panic(err)
	}
	for _, v := range []string{"v1", "v2", "v3"} {
		build(dir, v, "./testdata/prog", "-X main.version="+v)
	}
	for _, s := range []string{"s1", "s2", "s3"} {
		contents[s] = smallProgram(s)
		digests[s] = digestOf(contents[s])
	}
	return m.Run()
}

func build(dir, name, pkg, ldflags string) {
	out := filepath.Join(dir, name)
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w "+ldflags, "-o", out, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if msg, err := cmd.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("go build: %v\n%s", err, msg))
	}
	data, err := os.ReadFile(out)
	if err != nil {
		panic(err)
	}
	programs[name], contents[name], digests[name] = out, data, digestOf(data)
}

// smallProgram is an ELF file for this machine with the right header and 4 KB of
// nothing: for the tests that update thousands of times and never run it.
func smallProgram(name string) []byte {
	machine := uint16(62)
	for _, m := range elfMachines {
		if m.arch == runtime.GOARCH {
			machine = m.machine
		}
	}
	b := make([]byte, 4096)
	copy(b, "\x7fELF\x02\x01\x01")
	le := binary.LittleEndian
	le.PutUint16(b[16:], 2)       // ET_EXEC
	le.PutUint16(b[18:], machine) //
	le.PutUint64(b[32:], 64)      // where the program headers are
	le.PutUint16(b[54:], 56)      // the size of one
	le.PutUint16(b[56:], 1)       // how many
	le.PutUint32(b[64:], 1)       // PT_LOAD
	le.PutUint64(b[64+32:], 4096) // the size of the segment
	copy(b[1024:], name)
	return b
}

func content256(t testing.TB, path string) checksum.Digest {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return digestOf(data)
}

func content512(t testing.TB, path string) checksum.Digest {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	sum := sha512.Sum512(data)
	d, err := checksum.ParseDigest(hex.EncodeToString(sum[:]))
	require.NoError(t, err)
	return d
}

// install puts a program at dir/app, as an operator would.
func installed(t testing.TB, version string) string {
	t.Helper()
	return installedIn(t, t.TempDir(), version)
}

func installedIn(t testing.TB, dir, version string) string {
	t.Helper()
	path := filepath.Join(dir, "app")
	copyProgram(t, version, path)
	return path
}

func copyProgram(t testing.TB, version, path string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, contents[version], 0o755))
	require.NoError(t, os.Chmod(path, 0o755))
}

// run executes the program at path and returns what it prints.
func run(t testing.TB, path string) string {
	t.Helper()
	for range 50 {
		out, err := exec.Command(path).CombinedOutput()
		if errors.Is(err, syscall.ETXTBSY) { // golang/go#22315: a fork of another test holds it open
			time.Sleep(20 * time.Millisecond)
			continue
		}
		require.NoError(t, err, "%s", out)
		return strings.TrimSpace(string(out))
	}
	t.Fatal("text file busy")
	return ""
}

// release is a release of one program, with its checksum file, that counts.
type release struct {
	Release
	opened map[string]int
}

func releaseOf(t testing.TB, version, program string) *release {
	t.Helper()
	data := contents[program]
	r := &release{opened: map[string]int{}}
	sums := digests[program].Hex() + "  app\n"
	r.Release = Release{Version: version, Assets: []Asset{r.asset(version, "app", data)}}
	r.Lookup = func(name string) (Asset, error) {
		if name == "app.sha256" {
			return r.asset(version, name, []byte(sums)), nil
		}
		return Asset{}, fmt.Errorf("%w: %q", ErrNotFound, name)
	}
	return r
}

// releaseWith is a release of any bytes.
func releaseWith(version string, data []byte) *release {
	r := &release{opened: map[string]int{}}
	r.Release = Release{Version: version, Assets: []Asset{r.asset(version, "app", data)}}
	r.Lookup = func(name string) (Asset, error) {
		if name == "app.sha256" {
			return r.asset(version, name, []byte(digestOf(data).Hex()+"  app\n")), nil
		}
		return Asset{}, fmt.Errorf("%w: %q", ErrNotFound, name)
	}
	return r
}

// script is a program that does as it is told.
func script(lines string) []byte { return []byte("#!/bin/sh\n" + lines + "\n") }

func (r *release) asset(version, name string, data []byte) Asset {
	return Asset{Name: name, URL: "https://example.com/" + version + "/" + name, Size: int64(len(data)), Open: func(context.Context, Position) (Body, error) {
		r.opened[name]++
		return Body{ReadCloser: io.NopCloser(bytes.NewReader(data)), Size: int64(len(data))}, nil
	}}
}

func updater(t testing.TB, path string, change ...func(*Config)) *Updater {
	t.Helper()
	cfg := Config{Target: path, Trust: UnsignedChecksum("test")}
	for _, c := range change {
		c(&cfg)
	}
	u, err := New(cfg)
	require.NoError(t, err)
	return u
}

// listing returns every path below dir, except the lock files.
func listing(t testing.TB, dir string) []string {
	t.Helper()
	var all []string
	require.NoError(t, filepath.Walk(dir, func(p string, fi os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		if base := filepath.Base(p); base != "lock" && base != "state.lock" && rel != "." {
			all = append(all, rel)
		}
		return nil
	}))
	return all
}

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
