package httpsource

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

func TestTemplate(t *testing.T) {
	for _, tt := range []struct {
		name, base, version, asset string
		want                       string
	}{
		{"name", "https://h/fw/{version}/{name}", "v2.5.0", "app", "https://h/fw/v2.5.0/app"},
		{"directory", "https://h/fw/{version}/", "v2.5.0", "app", "https://h/fw/v2.5.0/app"},
		{"platform", "https://h/{os}/{arch}{arm}/{version}/{name}", "v1", "app", "https://h/plan9/arm7/v1/app"},
		{"plus", "https://h/{version}/{name}", "v1.2.3+fw1", "app+x", "https://h/v1.2.3%2Bfw1/app%2Bx"},
		{"blank and more", "https://h/{version}/{name}", "a b", "c?d#e%f", "https://h/a%20b/c%3Fd%23e%25f"},
		{"braces in a value", "https://h/{version}/{name}", "{name}", "{version}", "https://h/%7Bname%7D/%7Bversion%7D"},
		{"escaped base", "https://h/a%2Fb/{version}/{name}", "v1", "app", "https://h/a%2Fb/v1/app"},
		{"no semver", "https://h/{version}/{name}", "2fb7fd7", "app", "https://h/2fb7fd7/app"},
		{"twice", "https://h/{version}/app-{version}/{name}", "v1", "app", "https://h/v1/app-v1/app"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			src, err := New(Options{}).Template(Template{Bases: []string{tt.base}, OS: "plan9", Arch: "arm", Arm: "7"})
			require.NoError(t, err)
			r, err := src.Release(t.Context(), tt.version)
			require.NoError(t, err)
			assert.Equal(t, tt.version, r.Version)
			a, err := r.Asset(tt.asset)
			require.NoError(t, err)
			assert.Equal(t, tt.want, a.URL)
			assert.Equal(t, tt.asset, a.Name)
		})
	}
}

func TestTemplateRefused(t *testing.T) {
	good := "https://h/{version}/"
	for _, tt := range []struct {
		name string
		t    Template
		ok   bool
	}{
		{"good", Template{Bases: []string{good}}, true},
		{"good sums", Template{Bases: []string{good}, Sums: "app_{version}_{os}_{arch}{arm}.sha256"}, true},
		{"no base", Template{}, false},
		{"unknown placeholder", Template{Bases: []string{"https://h/{version}/{ext}/{name}"}}, false},
		{"upper case", Template{Bases: []string{"https://h/{Version}/{version}/{name}"}}, false},
		{"unclosed", Template{Bases: []string{"https://h/{version/{name}"}}, false},
		{"nested", Template{Bases: []string{"https://h/{{version}}/{name}"}}, false},
		{"no version", Template{Bases: []string{"https://h/{name}"}}, false},
		{"no name", Template{Bases: []string{"https://h/{version}/app"}}, false},
		{"placeholder in the host", Template{Bases: []string{"https://{version}.h/{version}/{name}"}}, false},
		{"placeholder in the query", Template{Bases: []string{"https://h/{version}/{name}?v={version}"}}, false},
		{"no scheme", Template{Bases: []string{"h/{version}/{name}"}}, false},
		{"ftp", Template{Bases: []string{"ftp://h/{version}/{name}"}}, false},
		{"second is bad", Template{Bases: []string{good, "https://h/"}}, false},
		{"unknown placeholder in sums", Template{Bases: []string{good}, Sums: "{name}.sha256"}, false},
		{"slash in os", Template{Bases: []string{good}, OS: "a/b"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := New(Options{}).Template(tt.t)
			assert.Equal(t, tt.ok, err == nil, "%v", err)
		})
	}
}

// What can't be part of a path is refused before any request.
func TestTemplateVersion(t *testing.T) {
	s := newSite(t, false, nil)
	src, err := New(Options{AllowHTTP: true}).Template(Template{Bases: []string{s.URL + "/{version}/"}})
	require.NoError(t, err)
	for _, bad := range []string{"", ".", "..", "../v1", "a/b", `a\b`, "v1\x00", "v1\x1b[31m", "v1\n", strings.Repeat("v", 256)} {
		_, err := src.Release(t.Context(), bad)
		require.ErrorIs(t, err, selfupdate.ErrNotFound, "%q", bad)
		assert.NotContains(t, err.Error(), "\x1b")
	}
	assert.Zero(t, s.requests.Load())
}

func TestTemplateSums(t *testing.T) {
	src, err := New(Options{}).Template(Template{Bases: []string{"https://h/{version}/"}, Sums: "app_{version}_{os}_{arch}.txt"})
	require.NoError(t, err)
	r, err := src.Release(t.Context(), "v1+2")
	require.NoError(t, err)
	assert.Equal(t, "app_v1+2_"+runtime.GOOS+"_"+runtime.GOARCH+".txt", r.Sums)
	a, err := r.Asset(r.Sums)
	require.NoError(t, err)
	assert.Equal(t, "https://h/v1+2/app_v1+2_"+runtime.GOOS+"_"+runtime.GOARCH+".txt", strings.ReplaceAll(a.URL, "%2B", "+"))
}

// The next mirror is asked on any error; one temporary error makes all temporary.
func TestMirrors(t *testing.T) {
	files := map[string][]byte{"/v1/app": []byte("program")}
	for _, tt := range []struct {
		name       string
		one, two   int64 // status, 0 is good
		want       error
		asksSecond bool
	}{
		{"first is good", 0, 0, nil, false},
		{"first is busy", 503, 0, nil, true},
		{"first is limited", 429, 0, nil, true},
		{"first lacks it", 404, 0, nil, true},
		{"first refuses", 403, 0, nil, true},
		{"both refuse", 403, 401, selfupdate.ErrResponse, true},
		{"first refuses, second is down", 403, 503, selfupdate.ErrNetwork, true},
		{"first refuses, second lacks it", 403, 404, selfupdate.ErrNetwork, true},
		{"first lacks it, second refuses", 404, 403, selfupdate.ErrNetwork, true},
		{"both lack it", 404, 404, selfupdate.ErrNotFound, true},
		{"first is down, second lacks it", 503, 404, selfupdate.ErrNetwork, true},
		{"first lacks it, second is down", 404, 503, selfupdate.ErrNetwork, true},
		{"first is down, second refuses", 503, 403, selfupdate.ErrNetwork, true},
		{"first is limited, second lacks it", 429, 404, selfupdate.ErrLimited, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			one, two := newSite(t, false, files), newSite(t, false, files)
			one.status.Store(tt.one)
			two.status.Store(tt.two)
			src, err := New(Options{AllowHTTP: true, Retries: -1}).Template(Template{Bases: []string{one.URL + "/{version}/", two.URL + "/{version}/"}})
			require.NoError(t, err)
			r, err := src.Release(t.Context(), "v1")
			require.NoError(t, err)
			data, _, err := fetchAll(t, r, "app", selfupdate.Position{})
			if tt.want == nil {
				require.NoError(t, err)
				assert.Equal(t, "program", data)
			} else {
				require.ErrorIs(t, err, tt.want)
				assert.Equal(t, tt.want == selfupdate.ErrNotFound, errors.Is(err, selfupdate.ErrNotFound))
				assert.Equal(t, selfupdate.ClassOf(tt.want), selfupdate.ClassOf(err))
			}
			assert.Equal(t, tt.asksSecond, two.requests.Load() > 0)
		})
	}
}

// A mirror continues only what it has begun itself.
func TestMirrorResume(t *testing.T) {
	one := newSite(t, false, map[string][]byte{"/v1/app": []byte("abcdefghij")})
	two := newSite(t, false, map[string][]byte{"/v1/app": []byte("0123456789")})
	src, err := New(Options{AllowHTTP: true, Retries: -1}).Template(Template{Bases: []string{one.URL + "/{version}/", two.URL + "/{version}/"}})
	require.NoError(t, err)
	r, err := src.Release(t.Context(), "v1")
	require.NoError(t, err)
	_, b, err := fetchAll(t, r, "app", selfupdate.Position{})
	require.NoError(t, err)
	require.NotEmpty(t, b.Validator)

	data, same, err := fetchAll(t, r, "app", selfupdate.Position{Offset: 5, Validator: b.Validator})
	require.NoError(t, err)
	assert.Equal(t, "fghij", data)
	assert.Equal(t, b.Validator, same.Validator)

	one.status.Store(503)
	data, b, err = fetchAll(t, r, "app", selfupdate.Position{Offset: 5, Validator: b.Validator})
	require.NoError(t, err)
	assert.Equal(t, "0123456789", data) // from the start, although the ETags are equal
	assert.Zero(t, b.Start)
}

func TestMirrorsCancelled(t *testing.T) {
	one, two := newSite(t, false, nil), newSite(t, false, nil)
	src, err := New(Options{AllowHTTP: true, Retries: -1}).Template(Template{Bases: []string{one.URL + "/{version}/", two.URL + "/{version}/"}})
	require.NoError(t, err)
	r, err := src.Release(t.Context(), "v1")
	require.NoError(t, err)
	a, err := r.Asset("app")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = a.Open(ctx, selfupdate.Position{})
	require.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, one.requests.Load()+two.requests.Load())
}
