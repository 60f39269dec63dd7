package selfupdate

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/internal/corpus"
)

// foreign builds the test program for another platform.
func foreign(t *testing.T, goos, goarch string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "prog")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", out, "./testdata/prog")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch)
	msg, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", msg)
	data, err := os.ReadFile(out)
	require.NoError(t, err)
	return data
}

func TestCheckFormat(t *testing.T) {
	linux := Platform{OS: "linux", Arch: "amd64"}
	elf := foreign(t, "linux", "amd64")
	arm := foreign(t, "linux", "arm64")
	macho := foreign(t, "darwin", "arm64")
	pe := foreign(t, "windows", "amd64")
	universal := fat(macho)
	shared := bytes.Clone(elf)
	binary.LittleEndian.PutUint16(shared[16:], 1) // ET_REL
	dll := bytes.Clone(pe)
	off := binary.LittleEndian.Uint32(dll[60:])
	dll[off+23] |= 0x20
	musl := withInterpreter(elf, "/lib/ld-musl-nowhere.so.1")
	for _, tt := range []struct {
		name string
		data []byte
		p    Platform
		want string // part of the error; "" is none
	}{
		{"this machine's", elf, linux, ""},
		{"arm64 on amd64", arm, linux, "for arm64"},
		{"arm64 on arm64", arm, Platform{OS: "linux", Arch: "arm64"}, ""},
		{"amd64 on 386", elf, Platform{OS: "linux", Arch: "386"}, "for amd64"},
		{"an unknown architecture is not checked", elf, Platform{OS: "linux", Arch: "sparc"}, ""},
		{"Mach-O on Linux", macho, linux, "it is a Mach-O file"},
		{"Mach-O on macOS", macho, Platform{OS: "darwin", Arch: "arm64"}, ""},
		{"Mach-O for another Mac", macho, Platform{OS: "darwin", Arch: "amd64"}, "for arm64"},
		{"universal", universal, Platform{OS: "darwin", Arch: "arm64"}, ""},
		{"universal without amd64", universal, Platform{OS: "darwin", Arch: "amd64"}, "for arm64"},
		{"PE on Windows", pe, Platform{OS: "windows", Arch: "amd64"}, ""},
		{"PE for another Windows", pe, Platform{OS: "windows", Arch: "arm64"}, "for amd64"},
		{"PE on Linux", pe, linux, "it is a PE file"},
		{"ELF on Windows", elf, Platform{OS: "windows", Arch: "amd64"}, "it is an ELF file"},
		{"a library", dll, Platform{OS: "windows", Arch: "amd64"}, "no executable"},
		{"an object file", shared, linux, "no executable"},
		{"cut in half", elf[:len(elf)/2], linux, "cut short"},
		{"cut in the header", elf[:40], linux, "cut short"},
		{"cut in the program headers", elf[:80], linux, "cut short"},
		{"another libc's", musl, linux, "interpreter"},
		{"empty", nil, linux, "empty"},
		{"HTML", []byte("\n <!DOCTYPE html>"), linux, "HTML"},
		{"script", []byte("#!/bin/sh\n"), linux, "script"},
		{"gzip", []byte("\x1f\x8b\x08"), linux, "gzip"},
		{"zip", []byte("PK\x03\x04"), linux, "zip"},
		{"text", []byte("Not Found"), linux, "no known format"},
		{"Java class", []byte("\xca\xfe\xba\xbe\x00\x00\x00\x34 and so on and on"), Platform{OS: "darwin", Arch: "arm64"}, "no known format"},
		{"MZ alone", []byte("MZ"), Platform{OS: "windows", Arch: "amd64"}, "cut short"},
		{"program headers beyond the end", hugeHeaders(elf), linux, "cut short"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := checkFormat(bytes.NewReader(tt.data), int64(len(tt.data)), tt.p, os.Stat)
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrFormat)
			assert.Contains(t, err.Error(), tt.want)
		})
	}
}

// fat wraps one Mach-O file as a universal binary.
func fat(macho []byte) []byte {
	b := make([]byte, 4096, 4096+len(macho))
	for i, v := range []uint32{0xcafebabe, 1, binary.LittleEndian.Uint32(macho[4:]), 0, 4096, uint32(len(macho)), 12} {
		binary.BigEndian.PutUint32(b[4*i:], v)
	}
	return append(b, macho...)
}

// withInterpreter makes the first program header of an ELF file a PT_INTERP.
func withInterpreter(elf []byte, path string) []byte {
	b := append(bytes.Clone(elf), path+"\x00"...)
	h := b[binary.LittleEndian.Uint64(b[32:]):]
	binary.LittleEndian.PutUint32(h, 3)
	binary.LittleEndian.PutUint64(h[8:], uint64(len(elf)))
	binary.LittleEndian.PutUint64(h[32:], uint64(len(path)+1))
	return b
}

func hugeHeaders(elf []byte) []byte {
	b := bytes.Clone(elf)
	binary.LittleEndian.PutUint64(b[32:], 1<<62)
	binary.LittleEndian.PutUint16(b[56:], 0xffff)
	return b
}

// What another program makes of the whole system's binaries, this must too.
func TestCheckFormatOfThisSystem(t *testing.T) {
	for _, path := range []string{"/bin/sh", "/bin/ls"} {
		f, err := os.Open(path)
		require.NoError(t, err)
		fi, err := f.Stat()
		require.NoError(t, err)
		require.NoError(t, checkFormat(f, fi.Size(), Host(), os.Stat), path)
		require.NoError(t, f.Close())
	}
}

func FuzzCheckFormat(f *testing.F) {
	corpus.Add(f)
	for _, v := range contents {
		f.Add(v[:4096])
	}
	f.Add(fat([]byte("\xcf\xfa\xed\xfe0123456789")))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, p := range []Platform{{OS: "linux", Arch: "amd64"}, {OS: "darwin", Arch: "arm64"}, {OS: "windows", Arch: "amd64"}} {
			_ = checkFormat(bytes.NewReader(data), int64(len(data)), p, os.Stat)
			_ = checkProgram(bytes.NewReader(data), nil, "v1.0.0")
		}
	})
}

func TestCheckProgram(t *testing.T) {
	candidate := bytes.NewReader(contents["v1"])
	old := func(path string) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Path: path}}
	}
	const module = "github.com/metal-stack/selfreconcile"
	require.NoError(t, checkProgram(candidate, old(module), "v1.2.3"))
	require.NoError(t, checkProgram(candidate, old(module+"/v7"), "v1.2.3"), "a new major version is the same program")
	require.NoError(t, checkProgram(candidate, nil, "v1.2.3"), "nothing to compare with")
	require.NoError(t, checkProgram(candidate, old(""), ""))
	require.ErrorIs(t, checkProgram(candidate, old("example.com/other"), "v1.2.3"), ErrOtherProgram)
	require.NoError(t, checkProgram(bytes.NewReader([]byte("no Go program")), old(module), "v1"))
}

func TestAnotherProgram(t *testing.T) {
	path := installed(t, "v1")
	other := buildModule(t, "example.com/other")
	rel := releaseOf(t, "v2", "v2")
	rel.Assets[0] = rel.asset("v2", "app", other)
	cfg := func(allow bool) func(*Config) {
		return func(c *Config) { c.Trust, c.AllowOtherProgram = Pinned(digestOf(other)), allow }
	}
	_, err := updater(t, path, cfg(false)).Apply(t.Context(), rel.Release)
	require.ErrorIs(t, err, ErrOtherProgram)
	_, err = updater(t, path, cfg(true)).Apply(t.Context(), rel.Release)
	require.NoError(t, err)
	assert.Equal(t, "other", run(t, path))
}

func buildModule(t *testing.T, module string) []byte {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module "+module+"\n\ngo 1.26\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() { println(\"other\") }\n"), 0o600))
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", "out", ".")
	cmd.Dir = dir
	msg, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", msg)
	data, err := os.ReadFile(filepath.Join(dir, "out"))
	require.NoError(t, err)
	return data
}

func TestReleaseTag(t *testing.T) {
	for _, v := range []string{"v1.2.3", "1.2.3", "v0.0.0", "v10.20.30"} {
		_, ok := releaseTag(v)
		assert.True(t, ok, v)
	}
	for _, v := range []string{
		"", "v1.2", "v1.2.3-rc.1", "v1.2.3+dirty", "v01.2.3", "latest", "2fb7fd7", "(devel)", "v1.2.3-0.20200101000000-abcdefabcdef",
		"v0.79.0-60-g8fae44fb1", "vv1.0.0", "jq-1.6", "2024-03-01", "v1.2.99999999999999999999", "v1.2.3\n",
	} {
		_, ok := releaseTag(v)
		assert.False(t, ok, v)
	}
	assert.True(t, older("v1.9.9", "v1.10.0"))
	assert.True(t, older("1.9.9", "v2.0.0"))
	assert.False(t, older("v1.10.0", "v1.9.9"))
	assert.False(t, older("v1.0.0", "v1.0.0"))
	assert.False(t, older("master", "v1.0.0"))
}

func TestManagedBy(t *testing.T) {
	for path, want := range map[string]string{
		"/opt/homebrew/Cellar/app/1.0/bin/app": "Homebrew",
		"/nix/store/x/bin/app":                 "Nix",
		`C:\Users\x\scoop\apps\app\app.exe`:    "Scoop",
		"/usr/local/bin/app":                   "",
		"/home/me/nix/store":                   "",
	} {
		assert.Equal(t, want, ManagedBy(path), path)
	}
}
