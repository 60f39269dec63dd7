package githubsource

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

func TestReleaseNamedTagNeedsNoRequest(t *testing.T) {
	for _, tt := range []struct{ tag, asset, path string }{
		{"v0.18.7", "metalctl-linux-amd64", "v0.18.7/metalctl-linux-amd64"},
		{"v2.3+2", "app_1.0~rc1+x", "v2.3%2B2/app_1.0~rc1%2Bx"},
		{"release/1.0", "a b%c", "release%2F1.0/a%20b%25c"},
		{"2fb7fd7", "ü#?.tar.gz", "2fb7fd7/%C3%BC%23%3F.tar.gz"},
	} {
		t.Run(tt.tag, func(t *testing.T) {
			h := newHub(t)
			rel, err := h.source(Options{}).Release(t.Context(), tt.tag)
			require.NoError(t, err)
			assert.Equal(t, tt.tag, rel.Version)
			assert.Nil(t, rel.Assets)
			a, err := rel.Asset(tt.asset)
			require.NoError(t, err)
			assert.Equal(t, tt.asset, a.Name)
			assert.EqualValues(t, -1, a.Size)
			assert.Empty(t, h.requests(), "no request before Open")

			assert.Equal(t, "payload of "+tt.asset, read(t, a))
			seen := h.requests()
			require.Len(t, seen, 2)
			assert.Equal(t, "/metal-stack/metalctl/releases/download/"+tt.path, seen[0])
		})
	}
}

func TestReleaseAddresses(t *testing.T) {
	for _, tt := range []struct{ api, web, want string }{
		{"", "", "https://github.com/"},
		{"https://api.github.com", "", "https://github.com/"},
		{"https://api.github.com/", "", "https://github.com/"},
		{"https://ghe.example.com/api/v3", "", "https://ghe.example.com/"},
		{"https://ghe.example.com:8443/git/api/v3/", "", "https://ghe.example.com:8443/git/"},
		{"https://api.octo.ghe.com", "", "https://octo.ghe.com/"},
		{"https://proxy.example.com/github", "", "https://proxy.example.com/github/"},
		{"https://proxy.example.com/api", "https://mirror.example.com/gh", "https://mirror.example.com/gh/"},
		{"https://proxy.example.com/api", "http://mirror.example.com", "http://mirror.example.com/"},
	} {
		s, err := NewWithOptions("o", "r", Options{APIURL: tt.api, WebURL: tt.web})
		require.NoError(t, err)
		rel, err := s.Release(t.Context(), "v1")
		require.NoError(t, err)
		a, err := rel.Asset("x")
		require.NoError(t, err)
		assert.Equal(t, tt.want+"o/r/releases/download/v1/x", a.URL)
	}
	for name, opts := range map[string]Options{
		"no scheme":         {APIURL: "ghe.example.com"},
		"another scheme":    {APIURL: "ftp://ghe.example.com"},
		"password":          {APIURL: "https://u:secret@ghe.example.com"},
		"query":             {APIURL: "https://ghe.example.com/?secret=1"},
		"not a URL":         {APIURL: "https://secret\x7f"},
		"pages":             {WebURL: "/secret"},
		"unencrypted":       {APIURL: "http://ghe.example.com"},
		"line in the token": {Token: "secret\nX: y"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewWithOptions("o", "r", opts)
			require.Error(t, err)
			assert.NotContains(t, err.Error(), "secret")
		})
	}
}

func TestReleaseRefusedNames(t *testing.T) {
	for _, name := range []string{"", ".", "..", "a/b", "a?b", "a\x00", "a b", "a..b", strings.Repeat("a", 101), "ö"} {
		_, err := New(name, "r").Release(t.Context(), "v1")
		require.Error(t, err, "owner %q", name)
		_, err = New("o", name).Release(t.Context(), "")
		require.Error(t, err, "repository %q", name)
		_, err = NewWithOptions("o", name, Options{})
		require.Error(t, err)
	}
	for _, tag := range []string{".", "..", "v1/../../x", "/v1", "v1/", "a//b", "v1\n", "a b", "a?b", "a*", "a^", "a:b", `a\b`, "a[", "x.lock", "x.", "@{", ".a/b", "\xff", strings.Repeat("a", 256)} {
		_, err := New("o", "r").Release(t.Context(), tag)
		require.ErrorIs(t, err, selfupdate.ErrNotFound, "tag %q", tag)
	}
	rel, err := New("o", "r").Release(t.Context(), "v1")
	require.NoError(t, err)
	for _, name := range []string{"", ".", "..", "a/b", "../x", "a\x00", "a\nb"} {
		_, err := rel.Asset(name)
		require.ErrorIs(t, err, selfupdate.ErrNotFound, "asset %q", name)
	}
	_, err = rel.Asset("firewall-controller")
	require.NoError(t, err)
}

func TestReleaseByTagIsNotSearchedFor(t *testing.T) {
	h := newHub(t)
	for i := range 120 {
		h.add(fmt.Sprintf("v1.0.%d", i), float64(i)+1, h.asset(i, "metalctl-linux-amd64"))
	}
	h.add("release/1.0+2", 1)
	s := h.source(Options{List: true})
	rel, err := s.Release(t.Context(), "v1.0.115")
	require.NoError(t, err)
	assert.Equal(t, "v1.0.115", rel.Version)
	assert.Len(t, rel.Assets, 1)
	assert.Equal(t, []string{"/repos/metal-stack/metalctl/releases/tags/v1.0.115"}, h.requests())

	rel, err = s.Release(t.Context(), "release/1.0+2")
	require.NoError(t, err)
	assert.Equal(t, "release/1.0+2", rel.Version)
	assert.Equal(t, []string{"/repos/metal-stack/metalctl/releases/tags/release%2F1.0%2B2"}, h.requests())

	_, err = s.Release(t.Context(), "v9.9.9")
	require.ErrorIs(t, err, selfupdate.ErrNotFound)
	assert.Equal(t, selfupdate.Temporary, selfupdate.ClassOf(err))
}
