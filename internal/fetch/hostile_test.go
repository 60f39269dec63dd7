package fetch

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// secret is in every query, credential and hostile text of these tests and in
// no error.
const secret = "s3cr3t"

// quick are limits for tests over real sockets.
func quick() limits {
	l := Options{}.limits()
	l.retries = 3
	l.backoffMin, l.backoffMax = time.Millisecond, 2*time.Millisecond
	l.stall = 10 * time.Second
	l.progress = 1
	return l
}

// quickClient accepts the certificates of servers, and http.
func quickClient(servers ...*httptest.Server) *Client {
	return newClient(Options{Client: trusting(servers...), AllowHTTP: true}, quick())
}

func trusting(servers ...*httptest.Server) *http.Client {
	tr := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	for _, s := range servers {
		if c := s.Certificate(); c != nil {
			tr.TLSClientConfig.RootCAs = s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
		}
	}
	return &http.Client{Transport: tr}
}

// serve is a plain server that counts its requests.
func serve(t *testing.T, h http.HandlerFunc) (*httptest.Server, *log) {
	t.Helper()
	l := &log{}
	s := httptest.NewServer(l.wrap(h))
	t.Cleanup(s.Close)
	return s, l
}

func serveTLS(t *testing.T, h http.HandlerFunc) (*httptest.Server, *log) {
	t.Helper()
	l := &log{}
	s := httptest.NewTLSServer(l.wrap(h))
	t.Cleanup(s.Close)
	return s, l
}

// log keeps the requests that a server has seen.
type log struct {
	mu   sync.Mutex
	seen []*http.Request
}

func (l *log) wrap(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		l.seen = append(l.seen, r.Clone(r.Context()))
		l.mu.Unlock()
		h(w, r)
	}
}

func (l *log) requests() []*http.Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*http.Request(nil), l.seen...)
}

// raw serves whatever answer returns for the n-th connection (from 0), byte for
// byte, and hangs up.
func raw(t *testing.T, answer func(n int, r *http.Request) string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ; n++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					_, _ = io.WriteString(conn, answer(n, r))
				}
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return "http://" + l.Addr().String() + "/asset?sig=" + secret
}

// flaky serves data with Range support and an ETag, and cuts the connection
// behind every cut bytes of a body.
func flaky(data []byte, tag string, cut int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if tag != "" {
			w.Header().Set("ETag", tag)
		}
		http.ServeContent(&cutter{w, cut}, r, "", time.Time{}, bytes.NewReader(data))
	}
}

type cutter struct {
	http.ResponseWriter
	left int
}

func (c *cutter) Write(p []byte) (int, error) {
	if len(p) > c.left {
		_, _ = c.ResponseWriter.Write(p[:c.left])
		hangUp(c.ResponseWriter)
	}
	c.left -= len(p)
	return c.ResponseWriter.Write(p)
}

// hangUp sends what was written and breaks the connection.
func hangUp(w http.ResponseWriter) {
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// pattern is a body in which no part equals another.
func pattern(n int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%08d", i)
	}
	return b.Bytes()[:n]
}

// get reads all of a request by Open.
func get(t *testing.T, c *Client, req Request) ([]byte, selfupdate.Body, error) {
	t.Helper()
	b, err := c.Open(t.Context(), req)
	if err != nil {
		return nil, b, err
	}
	data, err := io.ReadAll(b)
	assert.NoError(t, b.Close())
	assert.NotContains(t, b.URL, secret)
	return data, b, err
}

// fails checks what all errors have in common, and the kind of this one; nil for
// no error.
func fails(t *testing.T, err, want error) {
	t.Helper()
	if want == nil {
		require.NoError(t, err)
		return
	}
	require.Error(t, err)
	assert.ErrorIs(t, err, want)
	assert.NotZero(t, selfupdate.ClassOf(err), "%v", err)
	decent(t, err)
}

// decent walks the whole tree: a text that only %v of a cause shows counts too.
func decent(t *testing.T, err error) {
	t.Helper()
	text := err.Error()
	assert.NotContains(t, text, secret)
	assert.NotContains(t, text, "?")
	assert.False(t, strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }), "%q", text)
	assert.Less(t, len(text), 600)
	if u := errors.Unwrap(err); u != nil {
		decent(t, u)
	}
	if m, ok := err.(interface{ Unwrap() []error }); ok {
		for _, u := range m.Unwrap() {
			decent(t, u)
		}
	}
}

// noLeak fails the test when goroutines are left at its end.
func noLeak(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		for range 200 {
			if runtime.NumGoroutine() <= before {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		buf := make([]byte, 64<<10)
		t.Errorf("%d goroutines before, now:\n%s", before, buf[:runtime.Stack(buf, true)])
	})
}
