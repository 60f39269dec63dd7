package httpsource

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/selfupdate"
	"github.com/metal-stack/selfreconcile/source/sourcetest"
)

// site is a web server with files by escaped path.
type site struct {
	*httptest.Server
	files    map[string][]byte
	requests atomic.Int64
	cut      atomic.Bool
	status   atomic.Int64 // 0: as it is
	last     atomic.Pointer[http.Request]
}

func newSite(t *testing.T, tls bool, files map[string][]byte) *site {
	t.Helper()
	s := &site{files: files}
	if tls {
		s.Server = httptest.NewTLSServer(http.HandlerFunc(s.serve))
	} else {
		s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	}
	t.Cleanup(s.Close)
	return s
}

func (s *site) serve(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	s.last.Store(r.Clone(context.Background()))
	data, ok := s.files[r.URL.EscapedPath()]
	switch {
	case s.status.Load() != 0:
		w.WriteHeader(int(s.status.Load()))
	case !ok:
		http.NotFound(w, r)
	case s.cut.Load():
		w.Header().Set("Content-Length", "999999")
		_, _ = w.Write(data[:len(data)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	default:
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}
}

func (s *site) fixture(src selfupdate.Source) sourcetest.Fixture {
	return sourcetest.Fixture{
		Source: src, Version: "v1.2.3+fw1", Asset: "app-linux-amd64", Content: program,
		Requests: func() int { return int(s.requests.Load()) },
		Truncate: s.cut.Store,
	}
}

var program = bytes.Repeat([]byte("0123456789abcde\n"), 20_000)

// bare makes a Source of URL, so that the suite can run on it.
type bare struct {
	s    *Source
	base string
}

func (b bare) Release(_ context.Context, version string) (selfupdate.Release, error) {
	return b.s.URL(version, b.base+strings.ReplaceAll(version, "+", "%2B")+"/app-linux-amd64")
}

func TestConformance(t *testing.T) {
	files := map[string][]byte{"/fw/v1.2.3%2Bfw1/app-linux-amd64": program}
	s := newSite(t, true, files)
	t.Run("URL", func(t *testing.T) {
		sourcetest.Run(t, s.fixture(bare{New(Options{Client: s.Client(), Retries: -1}), s.URL + "/fw/"}))
	})
	t.Run("template", func(t *testing.T) {
		src, err := New(Options{Client: s.Client(), Retries: -1}).Template(Template{Bases: []string{s.URL + "/fw/{version}/"}})
		require.NoError(t, err)
		sourcetest.Run(t, s.fixture(src))
	})
	t.Run("mirrors", func(t *testing.T) {
		src, err := New(Options{Client: s.Client(), Retries: -1}).Template(Template{Bases: []string{
			s.URL + "/elsewhere/{version}/{name}", s.URL + "/fw/{version}/{name}"}})
		require.NoError(t, err)
		sourcetest.Run(t, s.fixture(src))
	})
	t.Run("http", func(t *testing.T) {
		s := newSite(t, false, files)
		src, err := New(Options{Retries: -1}).Template(Template{Bases: []string{s.URL + "/fw/{version}/"}})
		require.NoError(t, err)
		f := s.fixture(src)
		f.Authenticated = true
		sourcetest.Run(t, f)
	})
}

// fetchAll reads an asset of a release by name.
func fetchAll(t *testing.T, r selfupdate.Release, name string, pos selfupdate.Position) (string, selfupdate.Body, error) {
	t.Helper()
	a, err := r.Asset(name)
	if err != nil {
		return "", selfupdate.Body{}, err
	}
	b, err := a.Open(t.Context(), pos)
	if err != nil {
		return "", b, err
	}
	data, err := io.ReadAll(b)
	assert.NoError(t, b.Close())
	return string(data), b, err
}

func TestRelease(t *testing.T) {
	s := newSite(t, false, map[string][]byte{"/app": []byte("program"), "/app.sha256": []byte("sum")})
	r := Release("any version at all", s.URL+"/app?token=x")
	assert.Equal(t, "any version at all", r.Version)
	require.Len(t, r.Assets, 1)
	assert.Equal(t, "app", r.Assets[0].Name)
	assert.Equal(t, int64(-1), r.Assets[0].Size)
	assert.Zero(t, s.requests.Load())

	_, _, err := fetchAll(t, r, "app", selfupdate.Position{})
	require.ErrorIs(t, err, selfupdate.ErrInsecure) // http
	data, _, err := fetchAll(t, r, "app", selfupdate.Position{Authenticated: true})
	require.NoError(t, err)
	assert.Equal(t, "program", data)
	assert.Equal(t, "token=x", s.last.Load().URL.RawQuery)
	data, _, err = fetchAll(t, r, "app.sha256", selfupdate.Position{Authenticated: true})
	require.NoError(t, err)
	assert.Equal(t, "sum", data)
	assert.Empty(t, s.last.Load().URL.RawQuery)

	for _, bad := range []string{"", "app", "/app", "https://h", "https://h/", "https://h/dir/", "https:///app", "file:///app",
		"ftp://h/app", "https://h/..", "https://h/a%2Fb", "https://h/a%00", "https://h/%1b", "https://h/%zz?s3cr3t", "https://h:x/app"} {
		r := Release("v1", bad)
		assert.Equal(t, "v1", r.Version)
		assert.Empty(t, r.Assets)
		_, err := r.Asset("app")
		require.Error(t, err, bad)
		assert.NotContains(t, err.Error(), "s3cr3t")
		assert.NotErrorIs(t, err, selfupdate.ErrNotFound) // or it would be waited for
	}
}

func TestURLForTheRecord(t *testing.T) {
	one := Release("v1", "https://me:s3cr3t@h/dir/app?token=s3cr3t#frag").Assets[0].URL
	two := Release("v1", "https://me:s3cr3t@h/dir/app?token=other").Assets[0].URL
	assert.Regexp(t, `^https://h/dir/app#query-[0-9a-f]{8}$`, one)
	assert.NotEqual(t, one, two)
	assert.Equal(t, "https://h/dir/app", Release("v1", "https://h/dir/app").Assets[0].URL)
}

func TestSibling(t *testing.T) {
	for _, tt := range []struct{ url, name, want string }{
		{"https://h/app", "app.sha256", "https://h/app.sha256"},
		{"https://h/v1%2B2/a%2Fb/app?x=1", "checksums.txt", "https://h/v1%2B2/a%2Fb/checksums.txt"},
		{"https://h/d/app%2B1", "app+1.sha256", "https://h/d/app%2B1.sha256"},
		{"https://h/d/app", "a b?.txt", "https://h/d/a%20b%3F.txt"},
	} {
		a, err := Release("v1", tt.url).Asset(tt.name)
		require.NoError(t, err)
		assert.Equal(t, tt.want, a.URL)
		assert.Equal(t, tt.name, a.Name)
	}
}

func TestURLWithSums(t *testing.T) {
	src := New(Options{})
	r, err := src.URLWithSums("v1", "https://h/bin/app", "https://sums.h/dir/SUMS?sig=1")
	require.NoError(t, err)
	assert.Equal(t, "SUMS", r.Sums)
	assert.Len(t, r.Assets, 1)
	for name, want := range map[string]string{
		"SUMS":         `^https://sums\.h/dir/SUMS#query-`,
		"SUMS.minisig": `^https://sums\.h/dir/SUMS\.minisig$`,
		"app":          `^https://h/bin/app$`,
		"app.sig":      `^https://h/bin/app\.sig$`,
	} {
		a, err := r.Asset(name)
		require.NoError(t, err)
		assert.Regexp(t, want, a.URL)
	}
	for _, sums := range []string{"https://h2/app", "https://h/", "no"} {
		_, err = src.URLWithSums("v1", "https://h/bin/app", sums)
		require.Error(t, err)
	}
}

// Each origin sees its own credentials only.
func TestCredentials(t *testing.T) {
	files := map[string][]byte{"/v1/app": program}
	one, two := newSite(t, false, files), newSite(t, false, files)
	one.status.Store(503)
	src, err := New(Options{AllowHTTP: true, Retries: -1, Header: http.Header{"X-All": {"yes"}}, Credentials: map[string]http.Header{
		one.URL: {"Private-Token": {"one"}}, two.URL + "/": {"Private-Token": {"two"}}, "https://third": {"Authorization": {"x"}},
	}}).Template(Template{Bases: []string{one.URL + "/{version}/", two.URL + "/{version}/"}})
	require.NoError(t, err)
	r, err := src.Release(t.Context(), "v1")
	require.NoError(t, err)
	_, _, err = fetchAll(t, r, "app", selfupdate.Position{})
	require.NoError(t, err)
	for s, want := range map[*site]string{one: "one", two: "two"} {
		assert.Equal(t, want, s.last.Load().Header.Get("Private-Token"))
		assert.Equal(t, "yes", s.last.Load().Header.Get("X-All"))
		assert.Empty(t, s.last.Load().Header.Get("Authorization"))
	}

	for _, bad := range []string{"", "h", "https://h/path", "https://me:s3cr3t@h", "https://h?x"} {
		s := New(Options{Credentials: map[string]http.Header{bad: {}}})
		_, err := s.URL("v1", "https://h/app")
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "s3cr3t")
		_, err = s.Template(Template{Bases: []string{"https://h/{version}/"}})
		require.Error(t, err)
	}
}

// TestURLWithoutScheme: the URL may hold a secret, so the text says what is wanted instead.
func TestURLWithoutScheme(t *testing.T) {
	_, err := New(Options{AllowHTTP: true}).URL("v1", "127.0.0.1:8099/secret/app")
	require.ErrorContains(t, err, "not a URL that begins with https://")
	assert.NotContains(t, err.Error(), "secret")
}
