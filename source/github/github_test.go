package githubsource

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

const token = "ghp_verysecret"

// hub answers as GitHub's API, pages and storage do.
type hub struct {
	t       *testing.T
	api     *httptest.Server // and pages
	storage *httptest.Server // another origin: 400 with an Authorization
	root    string           // of the API's paths
	private bool
	answer  func(http.ResponseWriter, *http.Request) bool // instead of the usual

	mu       sync.Mutex
	releases []map[string]any
	embed    int // most assets in a release object
	seen     []string
}

func newHub(t *testing.T) *hub {
	h := &hub{t: t, root: "/", embed: 1000}
	h.api = httptest.NewServer(http.HandlerFunc(h.serve))
	h.storage = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.note("storage " + r.URL.Path)
		if r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "" {
			http.Error(w, "<Error>only one auth mechanism allowed</Error>", http.StatusBadRequest)
			return
		}
		http.ServeContent(w, r, "", noon, strings.NewReader("payload of "+strings.TrimPrefix(r.URL.Path, "/")))
	}))
	t.Cleanup(h.api.Close)
	t.Cleanup(h.storage.Close)
	return h
}

func (h *hub) source(opts Options) *Source {
	opts.APIURL = h.api.URL + h.root
	opts.AllowHTTP = true
	s, err := NewWithOptions("metal-stack", "metalctl", opts)
	require.NoError(h.t, err)
	s.now = func() time.Time { return noon }
	return s
}

func (h *hub) note(s string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = append(h.seen, s)
}

// requests returns what was asked since the last call.
func (h *hub) requests() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := h.seen
	h.seen = nil
	return seen
}

func (h *hub) serve(w http.ResponseWriter, r *http.Request) {
	h.note(r.URL.EscapedPath() + r.URL.RawQuery)
	auth := r.Header.Get("Authorization")
	path, isAPI := strings.CutPrefix(r.URL.Path, h.root+"repos/metal-stack/metalctl/releases")
	switch {
	case h.answer != nil && h.answer(w, r):
	case !isAPI:
		require.Empty(h.t, auth, "the pages need no token")
		name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
		http.Redirect(w, r, h.storage.URL+"/"+url.PathEscape(name)+"?X-Amz-Signature=abc", http.StatusFound)
	case h.private && auth == "":
		http.NotFound(w, r)
	case auth != "" && auth != "Bearer "+token:
		http.Error(w, `{"message":"Bad credentials"}`, http.StatusUnauthorized)
	default:
		h.serveAPI(w, r, path)
	}
}

func (h *hub) serveAPI(w http.ResponseWriter, r *http.Request, path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	parts := strings.Split(path, "/")
	switch {
	case path == "":
		h.page(w, r, h.cut(h.releases))
	case len(parts) == 3 && parts[1] == "assets":
		assert.Equal(h.t, "application/octet-stream", r.Header.Get("Accept"))
		http.Redirect(w, r, h.storage.URL+"/asset"+parts[2]+"?X-Amz-Signature=abc", http.StatusFound)
	case len(parts) == 3 && parts[2] == "assets":
		for _, rel := range h.releases {
			if fmt.Sprint(rel["id"]) == parts[1] {
				h.page(w, r, rel["assets"].([]map[string]any))
			}
		}
	case len(parts) >= 3 && parts[1] == "tags":
		for _, rel := range h.cut(h.releases) {
			if rel["tag_name"] == strings.TrimPrefix(path, "/tags/") && rel["draft"] != true {
				h.json(w, r, rel)
				return
			}
		}
		http.Error(w, `{"message":"Not Found"}`, http.StatusNotFound)
	default:
		http.NotFound(w, r)
	}
}

// cut leaves out what a release object does not show.
func (h *hub) cut(releases []map[string]any) []map[string]any {
	var out []map[string]any
	for _, rel := range releases {
		c := map[string]any{}
		for k, v := range rel {
			c[k] = v
		}
		if as := rel["assets"].([]map[string]any); len(as) > h.embed {
			c["assets"] = as[:h.embed]
		}
		out = append(out, c)
	}
	return out
}

func (h *hub) page(w http.ResponseWriter, r *http.Request, all []map[string]any) {
	page, size := 1, 30
	if n, err := strconv.Atoi(r.URL.Query().Get("page")); err == nil {
		page = n
	}
	if n, err := strconv.Atoi(r.URL.Query().Get("per_page")); err == nil {
		size = min(n, 100)
	}
	from, to := min((page-1)*size, len(all)), min(page*size, len(all))
	if to < len(all) {
		w.Header().Set("Link", fmt.Sprintf(`<%s%s?per_page=%d&page=%d>; rel="next", <https://elsewhere.example/?page=99>; rel="last"`, h.api.URL, r.URL.Path, size, page+1))
	}
	h.json(w, r, all[from:to])
}

func (h *hub) json(w http.ResponseWriter, r *http.Request, v any) {
	data, err := json.Marshal(v)
	assert.NoError(h.t, err)
	sum := checksum.SHA256.New()
	_, _ = sum.Write(data)
	etag := fmt.Sprintf(`W/"%x"`, sum.Sum(nil))
	w.Header().Set("ETag", etag)
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	if r.Header.Get("If-None-Match") == etag {
		h.seen[len(h.seen)-1] += " 304"
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(data)
}

// add publishes a release, days before noon.
func (h *hub) add(tag string, days float64, assets ...map[string]any) map[string]any {
	rel := map[string]any{
		"id": 1000 + len(h.releases), "tag_name": tag, "draft": false, "prerelease": false, "name": tag,
		"published_at": noon.Add(-time.Duration(days * 24 * float64(time.Hour))), "assets": append([]map[string]any{}, assets...),
	}
	h.releases = append(h.releases, rel)
	return rel
}

func (h *hub) asset(id int, name string) map[string]any {
	return map[string]any{
		"id": id, "name": name, "state": "uploaded", "size": len("payload of " + name), "digest": nil,
		"browser_download_url": h.api.URL + "/metal-stack/metalctl/releases/download/x/" + name,
	}
}

func read(t *testing.T, a selfupdate.Asset) string {
	t.Helper()
	body, err := a.Open(context.Background(), selfupdate.Position{})
	require.NoError(t, err)
	data, err := io.ReadAll(body)
	require.NoError(t, err)
	require.NoError(t, body.Close())
	assert.NotContains(t, body.URL, "Signature")
	return string(data)
}

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

func TestReleaseNewest(t *testing.T) {
	for _, tt := range []struct {
		name string
		opts Options
		fill func(h *hub)
		want string // "" is ErrNotFound
	}{
		{"order of versions, not of dates", Options{}, func(h *hub) {
			h.add("v1.9.0", 1)
			h.add("v1.10.0", 30)
			h.add("v1.2.0", 0)
		}, "v1.10.0"},
		{"without v", Options{}, func(h *hub) { h.add("1.4.2", 3); h.add("v1.4.1", 1); h.add("V1.4.0", 1) }, "1.4.2"},
		{"unparsable tags", Options{}, func(h *hub) {
			for _, tag := range []string{"nightly", "untagged-a303dfc4", "jq-1.6", "vv9.0", "2024-03-01", "20240301", "v9", "RELEASE.2031-01-01", "", "cli/v9.9.9"} {
				h.add(tag, 0)
			}
			h.add("v1.0.0", 9)
		}, "v1.0.0"},
		{"pre-releases and drafts", Options{}, func(h *hub) {
			h.add("v2.0.0", 1)["prerelease"] = true
			h.add("v3.0.0", 1)["draft"] = true
			h.add("v4.0.0-rc.1", 1)
			h.add("v1.0.0", 9)
		}, "v1.0.0"},
		{"pre-releases asked for", Options{PreReleases: true}, func(h *hub) {
			h.add("v2.0.0", 1)["prerelease"] = true
			h.add("v3.0.0", 1)["draft"] = true
			h.add("v1.0.0", 9)
		}, "v2.0.0"},
		{"a version above its pre-releases", Options{PreReleases: true}, func(h *hub) { h.add("v2.0.0-rc.10", 1); h.add("v2.0.0", 9); h.add("v2.0.0-rc.9", 2) }, "v2.0.0"},
		{"drafts asked for", Options{Drafts: true}, func(h *hub) { h.add("v3.0.0", 1)["draft"] = true; h.add("v1.0.0", 9) }, "v3.0.0"},
		{"only build metadata differs", Options{}, func(h *hub) { h.add("v1.32.4+k3s1", 5); h.add("v1.32.4+k3s2", 4); h.add("v1.32.4+k3s0", 6) }, "v1.32.4+k3s2"},
		{"on the second page", Options{}, func(h *hub) {
			for i := range 119 {
				h.add(fmt.Sprintf("v1.0.%d", i), 1)
			}
			h.add("v2.0.0", 100)
		}, "v2.0.0"},
		{"none", Options{}, func(*hub) {}, ""},
		{"none that counts", Options{}, func(h *hub) { h.add("nightly", 1); h.add("v1.0.0", 1)["draft"] = true }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHub(t)
			tt.fill(h)
			rel, err := h.source(tt.opts).Release(t.Context(), "")
			if tt.want == "" {
				require.ErrorIs(t, err, selfupdate.ErrNotFound)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, rel.Version)
			assert.Len(t, h.requests(), (len(h.releases)+99)/100)
		})
	}
}

func TestReleaseNewestLogsSkippedTags(t *testing.T) {
	h := newHub(t)
	h.add("nightly\x1b[31m", 1)
	h.add("v1.0.0", 1)
	var log bytes.Buffer
	_, err := h.source(Options{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}).Release(t.Context(), "")
	require.NoError(t, err)
	assert.Contains(t, log.String(), "skipped")
	assert.NotContains(t, log.String(), "\x1b")
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

func TestReleaseAssetsInPages(t *testing.T) {
	for _, embed := range []int{30, 100, 1000} {
		h := newHub(t)
		h.embed = embed
		var assets []map[string]any
		for i := range 130 {
			assets = append(assets, h.asset(i, fmt.Sprintf("tool-%d", i)))
		}
		h.add("v1.0.0", 1, assets...)
		for _, version := range []string{"v1.0.0", ""} {
			rel, err := h.source(Options{List: true}).Release(t.Context(), version)
			require.NoError(t, err)
			assert.Len(t, rel.Assets, 130)
			assert.Nil(t, rel.Lookup, "the list is complete")
			a, err := rel.Asset("tool-129")
			require.NoError(t, err)
			assert.Equal(t, "payload of tool-129", read(t, a))
			_, err = rel.Asset("tool-130")
			require.ErrorIs(t, err, selfupdate.ErrNotFound)
		}
	}
}

func TestReleaseNotModifiedWithManyAssets(t *testing.T) {
	h := newHub(t)
	h.embed = 30
	var assets []map[string]any
	for i := range 130 {
		assets = append(assets, h.asset(i, fmt.Sprintf("tool-%d", i)))
	}
	h.add("v1.0.0", 1, assets...)
	s := h.source(Options{Token: token})
	for _, version := range []string{"v1.0.0", ""} {
		_, err := s.Release(t.Context(), version)
		require.NoError(t, err)
		assert.Len(t, h.requests(), 3)
		rel, err := s.Release(t.Context(), version)
		require.NoError(t, err)
		assert.Len(t, rel.Assets, 130)
		assert.Len(t, h.requests(), 1, "a poll with nothing new")

		s.now = func() time.Time { return noon.Add(-24 * time.Hour) } // just published
		assets[129]["state"] = "starter"                              // beyond what the release object shows
		rel, err = s.Release(t.Context(), version)
		require.NoError(t, err)
		assert.True(t, rel.Assets[129].NotReady)
		assert.Len(t, h.requests(), 3)
		s.now, assets[129]["state"] = func() time.Time { return noon }, "uploaded"
	}
}

func TestReleaseEndlessPages(t *testing.T) {
	for name, next := range map[string]func(page int) int{
		"without an end": func(page int) int { return page + 1 },
		"in a circle":    func(int) int { return 1 },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t)
			h.answer = func(w http.ResponseWriter, r *http.Request) bool {
				page, _ := strconv.Atoi(r.URL.Query().Get("page"))
				w.Header().Set("Link", fmt.Sprintf(`<%s?page=%d>; rel="next"`, h.api.URL, next(max(page, 1))))
				_, _ = io.WriteString(w, `[{"tag_name":"v1.0.0"}]`)
				return true
			}
			_, err := h.source(Options{}).Release(t.Context(), "")
			require.Error(t, err)
			assert.Equal(t, selfupdate.Refused, selfupdate.ClassOf(err))
			assert.LessOrEqual(t, len(h.requests()), maxPages)
		})
	}
}

func TestReleaseAssetFields(t *testing.T) {
	h := newHub(t)
	hex := strings.Repeat("0f", 32)
	ready, starter, odd := h.asset(1, "ready"), h.asset(2, "starter"), h.asset(3, "odd")
	ready["digest"] = "sha256:" + hex
	starter["state"], starter["size"] = "starter", 0
	odd["digest"], odd["browser_download_url"] = "md5:00", "file:///etc/passwd"
	evil := h.asset(4, "../evil")
	renamed := h.asset(5, "app_1.0.0.rc.1_amd64") // uploaded as app_1.0.0~rc.1_amd64
	h.add("v1.0.0", 2, ready, starter, odd, evil, renamed)
	h.add("v1.1.0", 0.9/24, starter)
	s := h.source(Options{List: true})
	rel, err := s.Release(t.Context(), "v1.0.0")
	require.NoError(t, err)
	require.Len(t, rel.Assets, 4, "a name that leaves the directory is left out")
	assert.False(t, rel.Young)

	a, err := rel.Asset("ready")
	require.NoError(t, err)
	assert.Equal(t, "sha256:"+hex, a.Sum.String())
	assert.EqualValues(t, len("payload of ready"), a.Size)
	assert.False(t, a.NotReady)
	assert.Equal(t, "payload of ready", read(t, a))

	a, err = rel.Asset("starter")
	require.NoError(t, err)
	assert.True(t, a.NotReady)
	assert.EqualValues(t, -1, a.Size)

	a, err = rel.Asset("odd")
	require.NoError(t, err)
	assert.True(t, a.Sum.IsZero())
	_, err = a.Open(t.Context(), selfupdate.Position{})
	require.ErrorIs(t, err, selfupdate.ErrResponse)
	assert.NotContains(t, err.Error(), "passwd")

	a, err = rel.Asset("app_1.0.0.rc.1_amd64")
	require.NoError(t, err)
	assert.Equal(t, renamed["browser_download_url"], a.URL)

	rel, err = s.Release(t.Context(), "v1.1.0")
	require.NoError(t, err)
	assert.True(t, rel.Young)
	starter["state"], starter["size"] = "uploaded", 18
	rel, err = s.Release(t.Context(), "v1.1.0")
	require.NoError(t, err)
	assert.False(t, rel.Assets[0].NotReady, "an incomplete release is not remembered")
}

func TestReleasePrivate(t *testing.T) {
	for _, root := range []string{"/", "/api/v3/"} { // the second is Enterprise
		h := newHub(t)
		h.private, h.root = true, root
		h.add("v1.0.0", 1, h.asset(7, "metalctl-linux-amd64"))
		own := &http.Client{}
		s := h.source(Options{Token: token, Client: own})
		for _, version := range []string{"v1.0.0", ""} {
			rel, err := s.Release(t.Context(), version)
			require.NoError(t, err)
			a, err := rel.Asset("metalctl-linux-amd64")
			require.NoError(t, err)
			h.requests()
			body, err := a.Open(t.Context(), selfupdate.Position{})
			if err == nil {
				_ = body.Close()
			}
			require.ErrorIs(t, err, selfupdate.ErrSize, "the storage's size is not the API's") // asset7 is shorter
			assert.Equal(t, []string{root + "repos/metal-stack/metalctl/releases/assets/7", "storage /asset7"}, h.requests())
		}
		assert.Equal(t, http.Client{}, *own, "the caller's client is not changed")

		_, err := h.source(Options{List: true}).Release(t.Context(), "v1.0.0")
		require.ErrorIs(t, err, selfupdate.ErrNotFound)
		assert.Contains(t, err.Error(), "token")

		_, err = h.source(Options{Token: "stale"}).Release(t.Context(), "v1.0.0")
		require.ErrorIs(t, err, selfupdate.ErrResponse)
		assert.Contains(t, err.Error(), "the token was refused")
		assert.NotContains(t, err.Error(), "stale")
	}
}

func TestReleasePrivateAssetRead(t *testing.T) {
	h := newHub(t)
	h.private = true
	a := h.asset(7, "asset7")
	h.add("v1.0.0", 1, a)
	rel, err := h.source(Options{Token: token}).Release(t.Context(), "v1.0.0")
	require.NoError(t, err)
	assert.Equal(t, a["browser_download_url"], rel.Assets[0].URL)
	assert.Equal(t, "payload of asset7", read(t, rel.Assets[0]))
}

func TestReleaseNotModified(t *testing.T) {
	h := newHub(t)
	h.add("v1.0.0", 2, h.asset(1, "a"))
	s := h.source(Options{Token: token})
	for _, version := range []string{"", "v1.0.0"} {
		first, err := s.Release(t.Context(), version)
		require.NoError(t, err)
		h.requests()
		again, err := s.Release(t.Context(), version)
		require.NoError(t, err)
		seen := h.requests()
		require.Len(t, seen, 1)
		assert.Contains(t, seen[0], " 304")
		assert.Equal(t, first.Version, again.Version)
		assert.Len(t, again.Assets, 1)
	}

	h.add("v1.1.0", 2)
	rel, err := s.Release(t.Context(), "")
	require.NoError(t, err)
	assert.Equal(t, "v1.1.0", rel.Version)

	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			rel, err := s.Release(t.Context(), []string{"", "v1.0.0"}[i%2])
			assert.NoError(t, err)
			assert.Equal(t, []string{"v1.1.0", "v1.0.0"}[i%2], rel.Version)
		})
	}
	wg.Wait()

	h.answer = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusNotModified); return true }
	_, err = h.source(Options{Token: token}).Release(t.Context(), "")
	require.Error(t, err, "304 to a first request")
	assert.Equal(t, selfupdate.Refused, selfupdate.ClassOf(err))
}

func TestReleaseRateLimits(t *testing.T) {
	reset := time.Now().Add(40 * time.Minute).Truncate(time.Second)
	for _, tt := range []struct {
		name   string
		status int
		header map[string]string
		body   string
		within time.Duration // of the reset; 0 is none said
	}{
		{"primary", 403, map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": fmt.Sprint(reset.Unix())}, `{"message":"API rate limit exceeded for 1.2.3.4"}`, time.Second},
		{"primary as 429", 429, map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": fmt.Sprint(reset.Unix())}, `{}`, time.Second},
		{"secondary", 403, map[string]string{"Retry-After": "2400"}, `{"message":"You have exceeded a secondary rate limit","documentation_url":"https://docs.github.com/free-pro-team@latest/rest/overview/resources-in-the-rest-api#secondary-rate-limits"}`, 10 * time.Second},
		{"secondary as 429", 429, map[string]string{"Retry-After": "2400"}, `{}`, 10 * time.Second},
		{"secondary without a time", 403, nil, `{"message":"You have exceeded a secondary rate limit"}`, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHub(t)
			h.answer = func(w http.ResponseWriter, _ *http.Request) bool {
				for k, v := range tt.header {
					w.Header().Set(k, v)
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
				return true
			}
			s := h.source(Options{})
			s.now = time.Now
			start := time.Now()
			_, err := s.Release(t.Context(), "")
			var limited *selfupdate.RateLimitError
			require.ErrorAs(t, err, &limited)
			require.ErrorIs(t, err, selfupdate.ErrLimited)
			assert.Equal(t, selfupdate.Temporary, selfupdate.ClassOf(err))
			assert.Equal(t, strings.TrimPrefix(h.api.URL, "http://"), limited.Host)
			assert.Less(t, time.Since(start), 2*time.Second, "nobody sleeps")
			assert.Len(t, h.requests(), 1)
			assert.NotContains(t, err.Error(), "1.2.3.4")
			if tt.within == 0 {
				assert.True(t, limited.Reset.IsZero())
			} else {
				assert.WithinDuration(t, reset, limited.Reset, tt.within)
			}
		})
	}
}

func TestReleaseUnusableAnswers(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		body   string
		want   error
	}{
		{"page of a captive portal", 200, "<html>secret</html>", selfupdate.ErrResponse},
		{"empty", 200, "", selfupdate.ErrResponse},
		{"another type", 200, `{"tag_name":["secret"]}`, selfupdate.ErrResponse},
		{"a list", 200, `[]`, selfupdate.ErrResponse},
		{"no date", 200, `{"tag_name":"v1.0.0","published_at":"secret"}`, selfupdate.ErrResponse},
		{"another tag", 200, `{"tag_name":"v1.0.1"}`, selfupdate.ErrResponse},
		{"cut", 200, `{"tag_name":"v1.0`, selfupdate.ErrNetwork},
		{"accepted", 202, `{"message":"secret"}`, selfupdate.ErrResponse},
		{"forbidden", 403, `{"message":"secret: Resource protected by organization SAML"}`, selfupdate.ErrResponse},
		{"no such repository", 404, `{"message":"secret"}`, selfupdate.ErrNotFound},
		{"legal reasons", 451, `{"message":"secret"}`, selfupdate.ErrResponse},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHub(t)
			h.answer = func(w http.ResponseWriter, _ *http.Request) bool {
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
				return true
			}
			_, err := h.source(Options{List: true}).Release(t.Context(), "v1.0.0")
			require.ErrorIs(t, err, tt.want)
			assert.NotContains(t, err.Error(), "secret")
		})
	}
}

func TestReleaseTokenStaysWithTheAPI(t *testing.T) {
	h := newHub(t)
	h.answer = func(w http.ResponseWriter, r *http.Request) bool { // a repository that "moved" to a foreign host
		http.Redirect(w, r, h.storage.URL+"/moved?x=secret", http.StatusMovedPermanently)
		return true
	}
	_, err := h.source(Options{Token: token}).Release(t.Context(), "v1.0.0")
	require.ErrorIs(t, err, selfupdate.ErrResponse) // the storage would have said 400 with the token: it is no JSON instead
	assert.Contains(t, err.Error(), "JSON")
	assert.NotContains(t, err.Error(), "secret")
	assert.NotContains(t, err.Error(), token)
}

func TestReleaseContextEnds(t *testing.T) {
	h := newHub(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := h.source(Options{}).Release(ctx, "")
	require.True(t, errors.Is(err, context.Canceled))
	assert.Empty(t, h.requests())
}
