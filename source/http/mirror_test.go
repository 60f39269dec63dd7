package httpsource

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// mirrors is the release v1 of a Source with these bases.
func mirrors(t *testing.T, opts Options, bases ...string) selfupdate.Release {
	t.Helper()
	for i := range bases {
		bases[i] += "/{version}/"
	}
	opts.Retries = -1
	src, err := New(opts).Template(Template{Bases: bases})
	require.NoError(t, err)
	r, err := src.Release(t.Context(), "v1")
	require.NoError(t, err)
	return r
}

// A mirror may fail in any way of its own.
func TestMirrorFails(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	good := newSite(t, false, map[string][]byte{"/v1/app": []byte("good")})
	for _, tt := range []struct {
		name string
		h    http.HandlerFunc
		tls  bool // with a certificate that nobody knows
		want selfupdate.Class
	}{
		{"401", status(401), false, selfupdate.Refused},
		{"403", status(403), false, selfupdate.Refused},
		{"404", status(404), false, selfupdate.Temporary},
		{"451", status(451), false, selfupdate.Refused},
		{"501", status(501), false, selfupdate.Temporary},
		{"507", status(507), false, selfupdate.Temporary},
		{"521", status(521), false, selfupdate.Temporary},
		{"530", status(530), false, selfupdate.Temporary},
		{"redirect loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) }, false, selfupdate.Refused},
		{"redirect to a file", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "file:///x")
			w.WriteHeader(http.StatusFound)
		}, false, selfupdate.Refused},
		{"gzip", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, "x")
		}, false, selfupdate.Refused},
		{"broken small file", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, false, selfupdate.Temporary},
		{"unknown authority", status(200), true, selfupdate.Refused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bad := httptest.NewUnstartedServer(tt.h)
			bad.Config.ErrorLog = log.New(io.Discard, "", 0)
			if tt.tls {
				bad.StartTLS()
			} else {
				bad.Start()
			}
			defer bad.Close()
			data, _, err := fetchAll(t, mirrors(t, Options{AllowHTTP: true}, bad.URL, good.URL), "app", selfupdate.Position{})
			require.NoError(t, err)
			assert.Equal(t, "good", data)
			_, _, err = fetchAll(t, mirrors(t, Options{AllowHTTP: true}, bad.URL, bad.URL), "app", selfupdate.Position{})
			require.Error(t, err) // the control: there is no good one
			assert.Equal(t, tt.want, selfupdate.ClassOf(err))
		})
	}
}

// A base that we may not ask is an error of the configuration: it is said, not
// skipped.
func TestMirrorInsecure(t *testing.T) {
	plain := newSite(t, false, map[string][]byte{"/v1/app": []byte("plain")})
	secure := newSite(t, true, map[string][]byte{"/v1/app": []byte("secure")})
	r := mirrors(t, Options{Client: secure.Client()}, plain.URL, secure.URL)
	_, _, err := fetchAll(t, r, "app", selfupdate.Position{})
	require.ErrorIs(t, err, selfupdate.ErrInsecure)
	assert.Zero(t, plain.requests.Load()+secure.requests.Load())

	data, _, err := fetchAll(t, r, "app", selfupdate.Position{Authenticated: true})
	require.NoError(t, err) // the control: it is acceptable for this one
	assert.Equal(t, "plain", data)
}

// Where a body broke for good, the next call asks last.
func TestMirrorBreaks(t *testing.T) {
	one, two := newSite(t, false, map[string][]byte{"/v1/app": program}), newSite(t, false, map[string][]byte{"/v1/app": program})
	one.cut.Store(true)
	r := mirrors(t, Options{AllowHTTP: true}, one.URL, two.URL)
	_, _, err := fetchAll(t, r, "app", selfupdate.Position{})
	require.ErrorIs(t, err, selfupdate.ErrNetwork)
	assert.Zero(t, two.requests.Load())
	for range 2 {
		data, _, err := fetchAll(t, r, "app", selfupdate.Position{})
		require.NoError(t, err)
		assert.Equal(t, string(program), data)
	}
	assert.EqualValues(t, 1, one.requests.Load())

	one.cut.Store(false)
	two.cut.Store(true) // both have broken: the one that did so first is asked first
	_, _, err = fetchAll(t, r, "app", selfupdate.Position{})
	require.ErrorIs(t, err, selfupdate.ErrNetwork)
	_, _, err = fetchAll(t, r, "app", selfupdate.Position{})
	require.NoError(t, err)
	assert.EqualValues(t, 2, one.requests.Load())
}

// Nor does a body that the caller gave up, or that was good, cost a mirror its
// place.
func TestMirrorKeepsItsPlace(t *testing.T) {
	one, two := newSite(t, false, map[string][]byte{"/v1/app": program}), newSite(t, false, nil)
	r := mirrors(t, Options{AllowHTTP: true}, one.URL, two.URL)
	a, err := r.Asset("app")
	require.NoError(t, err)
	b, err := a.Open(t.Context(), selfupdate.Position{})
	require.NoError(t, err)
	require.NoError(t, b.Close())
	_, err = b.Read(make([]byte, 1))
	require.Error(t, err)
	_, _, err = fetchAll(t, r, "app", selfupdate.Position{})
	require.NoError(t, err)
	assert.EqualValues(t, 2, one.requests.Load())
	assert.Zero(t, two.requests.Load())
}
