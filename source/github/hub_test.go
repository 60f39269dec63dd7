package githubsource

import (
	"context"
	"encoding/json"
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
	out := []map[string]any{} // never null
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

func debug(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
