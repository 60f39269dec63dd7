package githubsource

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/internal/fetch"
	"github.com/metal-stack/selfreconcile/source/sourcetest"
)

// TestConformance runs the suite over the three ways to an asset: a named tag
// without the API, a listed public one, and a private one by its id.
func TestConformance(t *testing.T) {
	content := bytes.Repeat([]byte("firewall"), 40<<10)
	for name, opts := range map[string]Options{
		"named tag": {},
		"listed":    {List: true},
		"private":   {Token: token},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int64
			var cut atomic.Bool
			h := newHub(t)
			h.private = opts.Token != ""
			storage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "" {
					w.WriteHeader(http.StatusBadRequest)
					return
				}
				w.Header().Set("ETag", `"0x8DC"`)
				if cut.Load() {
					w.Header().Set("Content-Length", "327680")
					_, _ = w.Write(content[:len(content)/2])
					panic(http.ErrAbortHandler)
				}
				http.ServeContent(w, r, "", noon, bytes.NewReader(content))
			}))
			t.Cleanup(storage.Close)
			h.answer = func(w http.ResponseWriter, r *http.Request) bool {
				requests.Add(1)
				switch r.URL.Path {
				case "/repos/metal-stack/metalctl/releases/assets/7", "/metal-stack/metalctl/releases/download/v1.0.0/metalctl-linux-amd64":
					http.Redirect(w, r, storage.URL+"/blob?X-Amz-Signature=abc", http.StatusFound)
					return true
				}
				if strings.HasPrefix(r.URL.Path, "/repos/") {
					return false
				}
				http.NotFound(w, r)
				return true
			}
			a := h.asset(7, "metalctl-linux-amd64")
			a["size"], a["browser_download_url"] = len(content), h.api.URL+"/metal-stack/metalctl/releases/download/v1.0.0/metalctl-linux-amd64"
			h.add("v1.0.0", 1, a)

			opts.APIURL, opts.AllowHTTP = h.api.URL, true
			s, err := NewWithOptions("metal-stack", "metalctl", opts)
			require.NoError(t, err)
			s.fetch = fetch.New(fetch.Options{AllowHTTP: true, Backoff: time.Millisecond}) // cut bodies are tried again
			f := sourcetest.Fixture{
				Source: s, Version: "v1.0.0", Asset: "metalctl-linux-amd64", Content: content,
				Truncate: cut.Store,
			}
			if name == "named tag" {
				f.Requests = func() int { return int(requests.Load()) }
			}
			sourcetest.Run(t, f)
		})
	}
}
