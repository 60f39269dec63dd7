package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// update is one program that is brought from an older file to a released one.
type update struct {
	cli     string // the selfupdate command, as released
	rel     release
	key     string // the file with the public key
	asset   string // the program's name in the release
	old     string // an older build of the same program
	showing string // the program's flag that prints its version
	work    string
	log     io.Writer
}

// The exit codes of cmd/selfupdate that the check tells apart.
const (
	done    = 0
	refused = 3
)

// check updates from a URL and from a tag, by the publisher's signature and, from the
// URL, by the checksum beside the program alone. What is damaged, signed by somebody
// else or signed for another version is refused.
func (u update) check(ctx context.Context) error {
	srv := newServer(u.rel)
	defer srv.close()

	for _, name := range []string{u.asset, u.asset + ".sha256", sums, signature} {
		if _, err := os.Stat(u.rel.files[name]); err != nil {
			return fmt.Errorf("release: %w", err)
		}
	}
	other, err := u.anotherKey(ctx)
	if err != nil {
		return err
	}
	if err := u.verify(ctx, other); err != nil {
		return err
	}

	from := func(dir, version, key string) []string {
		return []string{"--url", srv.url + dir + u.asset, "--version", version, "--sums-url", srv.url + dir + sums, "--key", key, "--allow-http"}
	}
	here := "/" + u.rel.version + "/"
	signed := from(here, u.rel.version, u.key)
	refusals := [][]string{
		from("/damaged/", u.rel.version, u.key),
		from(here, u.rel.version, other),
		from(here, "v999.0.0", u.key), // an old release under a new name
	}
	byTag := []string{ // without --sums: the unsigned <asset>.sha256 is passed over
		"--github", "metal-stack/selfreconcile", "--tag", u.rel.version, "--asset", u.asset,
		"--api-url", srv.url + "/api/v3/", "--key", u.key, "--allow-http",
	}
	const reason = "a check of the release, over loopback"
	unsigned := func(dir, version string) []string {
		return []string{"--url", srv.url + dir + u.asset, "--version", version, "--unsigned-checksum", reason, "--allow-http"}
	}
	for _, c := range []struct {
		from     string
		args     []string
		refusals [][]string
	}{
		{"a URL, signed", signed, refusals},
		{"a tag on GitHub, signed", byTag, refusals},
		{"a URL, not signed", unsigned(here, u.rel.version), [][]string{unsigned("/damaged/", "damaged")}},
	} {
		if err := u.apply(ctx, srv, c.from, c.args, c.refusals); err != nil {
			return err
		}
	}
	if api := srv.count("/api/"); api != 0 {
		return fmt.Errorf("a named tag cost %d API requests, want none", api)
	}
	return nil
}

// anotherKey makes a key that nobody signed with.
func (u update) anotherKey(ctx context.Context) (public string, err error) {
	public = filepath.Join(u.work, "another.pub")
	return public, command(ctx, u.work, "minisign", "-G", "-W", "-p", public, "-s", filepath.Join(u.work, "another.key"))
}

// verify has the command compare every program with the checksum files.
func (u update) verify(ctx context.Context, other string) error {
	verified := 0
	for name, file := range u.rel.files {
		if name == sums || name == signature || strings.HasSuffix(name, ".sha256") {
			continue
		}
		if err := u.run(ctx, done, "verify", "--sums", u.rel.files[name+".sha256"], "--name", name, file); err != nil {
			return err
		}
		if err := u.run(ctx, done, "verify", "--sums", u.rel.files[sums], "--key", u.key, "--version", u.rel.version, "--name", name, file); err != nil {
			return err
		}
		verified++
	}
	u.say("selfupdate verify: %d programs are what both checksum files say, and signed", verified)
	// The controls: another file, another key, another version.
	args := []string{"verify", "--sums", u.rel.files[sums], "--name", u.asset}
	for _, control := range [][]string{
		{"--key", u.key, u.old},
		{"--key", other, u.rel.files[u.asset]},
		{"--key", u.key, "--version", "v999.0.0", u.rel.files[u.asset]},
	} {
		if err := u.run(ctx, refused, append(args[:len(args):len(args)], control...)...); err != nil {
			return err
		}
	}
	return nil
}

// apply lays the old program down, and has it refused what it must not become,
// updated, and left alone once it is up to date.
func (u update) apply(ctx context.Context, srv *server, from string, args []string, refusals [][]string) error {
	dir, err := os.MkdirTemp(u.work, "bin-")
	if err != nil {
		return err
	}
	target := filepath.Join(dir, "program")
	if err := copyProgram(u.old, target); err != nil {
		return err
	}
	before, err := digestOf(target)
	if err != nil {
		return err
	}
	want, err := digestOf(u.rel.files[u.asset])
	if err != nil {
		return err
	}
	if before == want {
		return errors.New("the old program is the released one: nothing would be shown")
	}

	expect := func(digest string) error {
		switch got, err := digestOf(target); {
		case err != nil:
			return err
		case got != digest:
			return fmt.Errorf("the target is %s, want %s", got, digest)
		}
		return nil
	}
	apply := func(code int, args []string) error {
		return u.run(ctx, code, append([]string{"apply", "--target", target}, args...)...)
	}

	for _, r := range refusals {
		if err := apply(refused, r); err != nil {
			return err
		}
		if err := expect(before); err != nil {
			return fmt.Errorf("after a refusal: %w", err)
		}
	}
	if err := apply(done, args); err != nil {
		return err
	}
	if err := expect(want); err != nil {
		return fmt.Errorf("after the update from %s: %w", from, err)
	}
	out, err := exec.CommandContext(ctx, target, u.showing).CombinedOutput()
	if err != nil || !strings.Contains(string(out), u.rel.version) {
		return fmt.Errorf("%s %s: %v, printed %q, want %s in it", target, u.showing, err, out, u.rel.version)
	}
	requests := srv.count("/")
	if err := apply(done, args); err != nil {
		return err
	}
	if n := srv.count("/") - requests; n != 0 {
		return fmt.Errorf("up to date from %s, and still %d requests", from, n)
	}
	u.say("from %s: %d refused, updated to %s, nothing left to do with 0 requests", from, len(refusals), u.rel.version)
	return nil
}

// run runs the command and compares its exit code.
func (u update) run(ctx context.Context, want int, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, u.cli, args...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("%s: %w", cmd, err)
	}
	if code := cmd.ProcessState.ExitCode(); code != want {
		return fmt.Errorf("%s: exit code %d, want %d\n%s", cmd, code, want, out)
	}
	return nil
}

func (u update) say(format string, args ...any) { fmt.Fprintf(u.log, format+"\n", args...) }

// server serves a release in three places: /VERSION/ASSET, the layout of GitHub
// (a redirect to another host, as there), and /damaged/ASSET, where one byte is
// not what the checksum file says.
type server struct {
	url  string
	rel  release
	web  *httptest.Server
	blob *httptest.Server

	mu    sync.Mutex
	paths []string
}

func newServer(rel release) *server {
	s := &server{rel: rel}
	s.blob = httptest.NewUnstartedServer(http.HandlerFunc(s.serveBlob))
	if l, err := net.Listen("tcp", "127.0.0.2:0"); err == nil { // another host, where the system has one without a DNS entry
		s.blob.Listener.Close()
		s.blob.Listener = l
	}
	s.blob.Start()
	s.web = httptest.NewServer(http.HandlerFunc(s.serveWeb))
	s.url = s.web.URL
	return s
}

func (s *server) close() {
	s.web.Close()
	s.blob.Close()
}

func (s *server) serveWeb(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.paths = append(s.paths, r.URL.Path)
	s.mu.Unlock()
	dir, name := path.Split(r.URL.Path)
	switch dir {
	case "/" + s.rel.version + "/":
		s.serveFile(w, r, name)
	case "/metal-stack/selfreconcile/releases/download/" + s.rel.version + "/":
		http.Redirect(w, r, s.blob.URL+"/"+name+"?signature=for-this-request-only", http.StatusFound)
	case "/damaged/":
		if path.Ext(name) == ".sha256" || strings.HasPrefix(name, sums) {
			s.serveFile(w, r, name)
			return
		}
		b, err := os.ReadFile(s.rel.files[name])
		if err != nil {
			http.NotFound(w, r)
			return
		}
		b[len(b)/2] ^= 1
		_, _ = w.Write(b)
	default:
		http.NotFound(w, r)
	}
}

func (s *server) serveBlob(w http.ResponseWriter, r *http.Request) {
	s.serveFile(w, r, path.Base(r.URL.Path))
}

func (s *server) serveFile(w http.ResponseWriter, r *http.Request, name string) {
	file, ok := s.rel.files[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	http.ServeFile(w, r, file)
}

// count returns how many requests there were whose path starts with prefix.
func (s *server) count(prefix string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, p := range s.paths {
		if strings.HasPrefix(p, prefix) {
			n++
		}
	}
	return n
}

func copyProgram(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}
