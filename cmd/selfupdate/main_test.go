package main

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// programs are what the tests install, by their name: real programs for this
// machine, of one module, that differ in the version they print. "other" is of
// another module, "foreign" for another machine, "text" is none. t1 to t5 contain
// this module and can be put on trial.
var programs = map[string][]byte{}

// toolVersionForTests is what the tool is built as.
const toolVersionForTests = "v9.8.7-test"

// TestMain builds the tool, as a release is built, and the programs that it
// installs, once for all tests.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "selfupdate-test-")
	if err == nil {
		err = build(dir)
	}
	if err == nil {
		err = os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// build makes the programs. Two builds serve for all: the version is a text of
// fixed length in the file.
func build(dir string) error {
	tool := filepath.Join(dir, "selfupdate")
	if runtime.GOOS == "windows" {
		tool += ".exe"
	}
	if err := goBuild(".", os.Getenv("GOFLAGS"), "-ldflags", "-s -w -X main.version="+toolVersionForTests, "-o", tool, "."); err != nil {
		return err
	}
	for _, module := range []string{"app", "other"} {
		program, err := buildModule(filepath.Join(dir, module), module)
		if err != nil {
			return err
		}
		programs[module] = program
	}
	for v := range 5 {
		name := fmt.Sprintf("v%d", v+1)
		programs[name] = bytes.ReplaceAll(programs["app"], []byte("version-0"), []byte("version-"+strconv.Itoa(v+1)))
	}
	service := filepath.Join(dir, "service")
	if err := goBuild(".", "", "-ldflags", "-s -w", "-o", service, "./testdata/service"); err != nil {
		return err
	}
	data, err := os.ReadFile(service)
	if err != nil {
		return err
	}
	for v := range 5 {
		programs[fmt.Sprintf("t%d", v+1)] = bytes.ReplaceAll(data, []byte("version-0"), []byte("version-"+strconv.Itoa(v+1)))
	}
	foreign := bytes.Clone(programs["v1"])
	if runtime.GOOS == "linux" {
		foreign[18] ^= 0x80 // e_machine
	} else {
		foreign[0] ^= 0x80
	}
	programs["foreign"] = foreign
	programs["text"] = []byte("#!/bin/sh\nexit 0\n")
	return nil
}

func buildModule(dir, module string) ([]byte, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	for name, text := range map[string]string{
		"go.mod":  "module example.com/" + module + "\n\ngo 1.26\n",
		"main.go": "package main\n\nimport \"os\"\n\nvar version = \"version-0\"\n\nfunc main() { os.Stdout.WriteString(version + \"\\n\") }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	if err := goBuild(dir, "", "-o", "program", "."); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, "program"))
}

func goBuild(dir, goflags string, args ...string) error {
	cmd := exec.Command("go", append([]string{"build", "-trimpath", "-buildvcs=false"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS="+goflags, "GOWORK=off", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, out)
	}
	return nil
}

func hex256(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }
func hex512(b []byte) string { return fmt.Sprintf("%x", sha512.Sum512(b)) }

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               setup,
		Condition: func(cond string) (bool, error) {
			if cond == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":    cmdExits,
			"holds":    cmdHolds,
			"clean":    cmdClean,
			"requests": cmdRequests,
			"await":    cmdAwait,
			"install":  cmdInstall,
		},
	})
}

// setup starts a server for each script and describes it in the environment.
func setup(env *testscript.Env) error {
	env.Setenv("PATH", os.Getenv("PATH"))
	s := startServer()
	env.Defer(s.close)
	env.Values["server"] = s
	env.Setenv("URL", s.URL+"/files")
	env.Setenv("TLS", s.tls.URL+"/files")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.tls.Certificate().Raw})
	if err := os.WriteFile(filepath.Join(env.WorkDir, "ca.pem"), ca, 0o600); err != nil {
		return err
	}
	env.Setenv("API", s.URL+"/api/v3/")
	env.Setenv("PLATFORM", platform)
	for name, b := range programs {
		env.Setenv("sum_"+name, "sha256:"+hex256(b))
	}
	env.Setenv("sum512_v2", "sha512:"+hex512(programs["v2"]))
	return nil
}

// exits CODE COMMAND...: the command ends with exactly that code.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	got := 0
	err := ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d, not %s", got, args[0])
	}
}

// install PATH NAME: the program NAME is at PATH, as if somebody had put it there.
func cmdInstall(ts *testscript.TestScript, neg bool, args []string) {
	path := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(filepath.Dir(path), 0o755))
	ts.Check(os.WriteFile(path, programs[args[1]], 0o755))
}

// holds PATH NAME: the file is the program NAME, and executable.
func cmdHolds(ts *testscript.TestScript, neg bool, args []string) {
	data := ts.ReadFile(args[0])
	if same := data == string(programs[args[1]]); same == neg {
		ts.Fatalf("%s holds %s: %v", args[0], args[1], same)
	}
	fi, err := os.Stat(ts.MkAbs(args[0]))
	ts.Check(err)
	if runtime.GOOS != "windows" && fi.Mode().Perm() != 0o755 {
		ts.Fatalf("%s has mode %v", args[0], fi.Mode())
	}
}

// clean DIR: nothing that an update stages is left there.
func cmdClean(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(filepath.WalkDir(ts.MkAbs(args[0]), func(path string, d fs.DirEntry, err error) error {
		if n := d.Name(); strings.HasPrefix(n, ".dl-") || strings.HasPrefix(n, ".tmp-") || strings.HasPrefix(n, ".selfupdate-") {
			ts.Fatalf("%s is left", path)
		}
		return err
	}))
}

// requests KIND N: so many were made since the last reset. requests reset
func cmdRequests(ts *testscript.TestScript, _ bool, args []string) {
	s := ts.Value("server").(*server)
	if args[0] == "reset" {
		s.reset()
		return
	}
	if got := s.count(args[0]); strconv.Itoa(got) != args[1] {
		ts.Fatalf("%d requests of kind %s, not %s", got, args[0], args[1])
	}
}

// await: a slow download has begun.
func cmdAwait(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Value("server").(*server).await()
}
