package fetch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

func discard() *stdlog.Logger { return stdlog.New(io.Discard, "", 0) }

func TestCallersClient(t *testing.T) {
	s, l := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"})
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "/", http.StatusFound)
		}
	})
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	refuse := errors.New("not that way")
	hc := trusting()
	hc.Jar, hc.Timeout = jar, time.Minute
	before := *hc
	c := newClient(Options{Client: hc, AllowHTTP: true, UserAgent: "ours/1"}, quick())
	for range 2 {
		_, _, err = get(t, c, Request{URL: s.URL})
		require.NoError(t, err)
	}
	assert.Equal(t, before, *hc)
	assert.Equal(t, "a=b", l.requests()[1].Header.Get("Cookie"))
	assert.Equal(t, "ours/1", l.requests()[1].Header.Get("User-Agent"))

	hc.CheckRedirect = func(*http.Request, []*http.Request) error { return refuse }
	_, _, err = get(t, newClient(Options{Client: hc, AllowHTTP: true}, quick()), Request{URL: s.URL + "/away"})
	fails(t, err, selfupdate.ErrNetwork)
	hc.CheckRedirect = useLastResponse
	_, _, err = get(t, newClient(Options{Client: hc, AllowHTTP: true}, quick()), Request{URL: s.URL + "/away"})
	fails(t, err, selfupdate.ErrResponse)
}

func TestProxy(t *testing.T) {
	status := http.StatusOK
	proxy, l := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "by proxy")
	})
	u, err := url.Parse(strings.Replace(proxy.URL, "//", "//me:"+secret+"@", 1))
	require.NoError(t, err)
	tr := defaultTransport(quick())
	assert.NotNil(t, tr.Proxy)
	tr.Proxy, tr.DisableKeepAlives = http.ProxyURL(u), true
	c := newClient(Options{Client: &http.Client{Transport: tr}, AllowHTTP: true}, quick())
	data, _, err := get(t, c, Request{URL: "http://upstream.example/asset?" + secret})
	require.NoError(t, err)
	assert.Equal(t, "by proxy", string(data))
	assert.Equal(t, "upstream.example", l.requests()[0].Host)

	for code, want := range map[int]error{407: selfupdate.ErrResponse, 502: selfupdate.ErrNetwork} {
		status = code
		_, _, err = get(t, c, Request{URL: "https://upstream.example/asset?" + secret}) // CONNECT
		fails(t, err, want)
		assert.Contains(t, err.Error(), fmt.Sprint("the proxy answers status ", code))
	}
}

// A transport of the caller's may say anything in its errors.
func TestForeignTransport(t *testing.T) {
	for _, cause := range []error{
		errors.New("GET https://me:" + secret + "@h/?sig=" + secret + " giving up"),
		&url.Error{Op: "Get", URL: "https://h/?" + secret, Err: errors.New(secret)},
		fmt.Errorf("wrapped: %w", &url.Error{Op: "Get", URL: "https://h/?" + secret, Err: io.ErrUnexpectedEOF}),
	} {
		hc := &http.Client{Transport: tripper(func(*http.Request) (*http.Response, error) { return nil, cause })}
		_, _, err := get(t, newClient(Options{Client: hc}, quick()), Request{URL: "https://h.example/?" + secret})
		fails(t, err, selfupdate.ErrNetwork)
	}
	for _, resp := range []*http.Response{nil, {StatusCode: 200}} {
		hc := &http.Client{Transport: tripper(func(*http.Request) (*http.Response, error) { return resp, nil })}
		_, _, err := get(t, newClient(Options{Client: hc}, quick()), Request{URL: "https://h.example/?" + secret})
		fails(t, err, selfupdate.ErrNetwork)
	}
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestHTTPClient(t *testing.T) {
	noLeak(t)
	n := 0
	s, l := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch n++; r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, "/flaky", http.StatusFound)
		case "/endless":
			for {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		case "/zip":
			w.Header().Set("Content-Encoding", "gzip")
		default:
			if n%3 != 0 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}
	})
	hc := quickClient().HTTPClient()
	do := func(method, path string) (*http.Response, error) {
		r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path+"?sig="+secret, http.NoBody)
		require.NoError(t, err)
		return hc.Do(r)
	}
	for _, tt := range []struct {
		method, path string
		status       int
		requests     int
	}{
		{http.MethodGet, "/flaky", 200, 3},
		{http.MethodHead, "/flaky", 200, 3},
		{http.MethodPost, "/flaky", 503, 1}, // not idempotent: once
		{http.MethodGet, "/redirect", 200, 3},
	} {
		n = 0
		before := len(l.requests())
		resp, err := do(tt.method, tt.path)
		require.NoError(t, err)
		assert.Equal(t, tt.status, resp.StatusCode)
		assert.Len(t, l.requests(), before+tt.requests)
		require.NoError(t, resp.Body.Close())
	}
	resp, err := do(http.MethodGet, "/endless")
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	fails(t, Clean(err), selfupdate.ErrTooLarge)
	require.NoError(t, resp.Body.Close())
	_, err = do(http.MethodGet, "/zip")
	fails(t, Clean(err), selfupdate.ErrResponse)
}

// A library that asks where a redirect goes must get it.
func TestHTTPClientLocation(t *testing.T) {
	s, _ := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/tag/v1", http.StatusFound) })
	hc := *quickClient().HTTPClient()
	hc.CheckRedirect = useLastResponse
	resp, err := hc.Get(s.URL)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, "/tag/v1", resp.Header.Get("Location"))
}

func TestLog(t *testing.T) {
	n := 0
	s, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if n++; n < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		flaky(pattern(1000), `"v1"`, 600)(w, r)
	})
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c := newClient(Options{Client: trusting(), AllowHTTP: true, Log: log}, quick())
	_, _, err := get(t, c, Request{URL: strings.Replace(s.URL, "//", "//me:"+secret+"@", 1) + "/asset?sig=" + secret, Credential: token()})
	require.NoError(t, err)
	assert.NotContains(t, text.String(), secret)
	for _, want := range []string{"status=503", "trying again", "resuming", "status=206", "/asset"} {
		assert.Contains(t, text.String(), want)
	}
	assert.NotContains(t, text.String(), "level=ERROR")
}

func TestConcurrent(t *testing.T) {
	noLeak(t)
	data := pattern(50_000)
	s, _ := serve(t, flaky(data, `"v1"`, 20_000))
	c := quickClient()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			got, _, err := get(t, c, Request{URL: s.URL, Credential: token()})
			assert.NoError(t, err)
			assert.Equal(t, data, got)
		})
	}
	wg.Wait()
}

func TestSegment(t *testing.T) {
	for in, want := range map[string]string{
		"v1.2.3+fw1":  "v1.2.3%2Bfw1",
		"a b":         "a%20b",
		"a~rc.1":      "a~rc.1",
		"a?b#c%":      "a%3Fb%23c%25",
		"a/b":         "a%2Fb",
		"ünï":         "%C3%BCn%C3%AF",
		"k3s:v1@x=&$": "k3s:v1@x=&$",
	} {
		assert.Equal(t, want, EscapeSegment(in))
		u, err := url.Parse("https://h/" + EscapeSegment(in))
		require.NoError(t, err)
		assert.Equal(t, "/"+in, u.Path)
		assert.Equal(t, "/"+want, u.EscapedPath()) // what goes over the wire
	}
	for _, bad := range []string{"", ".", "..", "a/..", "../a", "a/b", `a\b`, "a\x00", "a\x1b[31m", "a\n", "a\x7f", "a\xff", "a\u202eb", strings.Repeat("a", 256)} {
		assert.Error(t, CheckSegment(bad), "%q", bad)
	}
	for _, good := range []string{"a", "v1.2.3+fw1", ".hidden", "a b", "ünï", strings.Repeat("a", 255)} {
		assert.NoError(t, CheckSegment(good), "%q", good)
	}
}

func TestOrigin(t *testing.T) {
	for in, want := range map[string]string{
		"https://H.example/a":       "https://h.example:443",
		"https://h.example:443":     "https://h.example:443",
		"http://h.example":          "http://h.example:80",
		"https://me:x@h.example:8/": "https://h.example:8",
		"https://[::1]/":            "https://::1:443",
	} {
		u, err := url.Parse(in)
		require.NoError(t, err)
		assert.Equal(t, want, Origin(u))
	}
}

// BenchmarkOpen compares reading by Open with reading by a plain client.
func BenchmarkOpen(b *testing.B) {
	data := make([]byte, 64<<20)
	h := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}
	plain := httptest.NewServer(http.HandlerFunc(h))
	defer plain.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(h))
	defer secure.Close()
	c := New(Options{AllowHTTP: true, Client: &http.Client{}})
	cs := New(Options{Client: secure.Client()})
	buf := make([]byte, 256<<10)
	drain := func(b *testing.B, r io.ReadCloser) {
		_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r}, buf)
		require.NoError(b, err)
		require.NoError(b, r.Close())
	}
	open := func(c *Client, url string) func(*testing.B) {
		return func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				body, err := c.Open(b.Context(), Request{URL: url})
				require.NoError(b, err)
				drain(b, body)
			}
		}
	}
	reference := func(c *http.Client, url string) func(*testing.B) {
		return func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				resp, err := c.Get(url)
				require.NoError(b, err)
				drain(b, resp.Body)
			}
		}
	}
	b.Run("http/plain", reference(http.DefaultClient, plain.URL))
	b.Run("http/open", open(c, plain.URL))
	b.Run("https/plain", reference(secure.Client(), secure.URL))
	b.Run("https/open", open(cs, secure.URL))
}
