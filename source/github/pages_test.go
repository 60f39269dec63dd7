package githubsource

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// secondPage fills the first page with v1.0.N and puts v2.0.0 on the second.
func secondPage(h *hub, assets ...map[string]any) map[string]any {
	for i := range perPage {
		h.add(fmt.Sprintf("v1.0.%d", i), 2, assets...)
	}
	return h.add("v2.0.0", 100, assets...)
}

func TestReleaseWithdrawnFromTheSecondPage(t *testing.T) {
	for _, tt := range []struct {
		name     string
		withdraw func(h *hub, r map[string]any)
		want     string
	}{
		{"pre-release", func(_ *hub, r map[string]any) { r["prerelease"] = true }, "v1.0.99"},
		{"draft", func(_ *hub, r map[string]any) { r["draft"] = true }, "v1.0.99"},
		{"deleted", func(h *hub, _ map[string]any) { h.releases = h.releases[:perPage] }, "v1.0.99"},
		{"a newer one behind it", func(h *hub, _ map[string]any) { h.add("v3.0.0", 200) }, "v3.0.0"},
		{"nothing", func(*hub, map[string]any) {}, "v2.0.0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHub(t)
			r := secondPage(h, h.asset(1, "tool"))
			s := h.source(Options{Token: token})
			for range 2 {
				rel, err := s.Release(t.Context(), "")
				require.NoError(t, err)
				assert.Equal(t, "v2.0.0", rel.Version)
			}
			seen := h.requests()
			require.Len(t, seen, 4)
			for _, poll := range seen[2:] {
				assert.Contains(t, poll, " 304", "an unchanged page is free")
			}

			tt.withdraw(h, r)
			for range 2 {
				rel, err := s.Release(t.Context(), "")
				require.NoError(t, err)
				assert.Equal(t, tt.want, rel.Version)
				if tt.want != "v3.0.0" {
					assert.Len(t, rel.Assets, 1)
				}
			}
		})
	}
}

func TestReleaseOfARememberedPageListsItsAssetsAgain(t *testing.T) {
	h := newHub(t)
	r := secondPage(h, h.asset(1, "tool"))
	s := h.source(Options{Token: token})
	_, err := s.Release(t.Context(), "")
	require.NoError(t, err)
	h.requests()
	r["prerelease"] = true
	for i, want := range []int{3, 2} { // the assets of v1.0.99 once
		rel, err := s.Release(t.Context(), "")
		require.NoError(t, err)
		assert.Equal(t, "v1.0.99", rel.Version)
		assert.Equal(t, "tool", rel.Assets[0].Name)
		assert.Len(t, h.requests(), want, "poll %d", i)
	}
}

func TestReleaseUnusablePage(t *testing.T) {
	for _, page := range []int{1, 2} {
		for _, body := range []string{"", "null", "[null]", `{"message":"secret"}`, "[1]", "<html>", "[,]", "[{}"} {
			t.Run(fmt.Sprintf("%d %s", page, body), func(t *testing.T) {
				h := newHub(t)
				secondPage(h)
				broken := true
				h.answer = func(w http.ResponseWriter, r *http.Request) bool {
					if !broken || (r.URL.Query().Get("page") == "2") != (page == 2) {
						return false
					}
					w.Header().Set("ETag", `"broken"`)
					_, _ = io.WriteString(w, body)
					return true
				}
				s := h.source(Options{})
				_, err := s.Release(t.Context(), "")
				want := selfupdate.ErrResponse
				if body == "[{}" {
					want = selfupdate.ErrNetwork // it looks like a cut connection
				}
				require.ErrorIs(t, err, want)
				assert.NotContains(t, err.Error(), "secret")

				broken = false
				rel, err := s.Release(t.Context(), "")
				require.NoError(t, err)
				assert.Equal(t, "v2.0.0", rel.Version)
			})
		}
	}
}

func TestReleaseNextLink(t *testing.T) {
	for _, tt := range []struct {
		name string
		link string
		want error
	}{
		{"cursor", `<API?per_page=100&cursor=Y3Vyc29y>; rel="next"`, selfupdate.ErrResponse},
		{"after", `<API?per_page=100&after=Y3Vyc29y>; rel="next"`, selfupdate.ErrResponse},
		{"no query", `<API>; rel="next"`, selfupdate.ErrResponse},
		{"no number", `<API?page=two>; rel=next`, selfupdate.ErrResponse},
		{"negative", `<API?page=-2>; rel="next"`, selfupdate.ErrResponse},
		{"a page left out", `<API?page=3>; rel="next"`, selfupdate.ErrResponse},
		{"since", `<API?since=17>; rel="next"`, selfupdate.ErrResponse},
		{"several relations", `<API?page=2>; rel="last next"`, selfupdate.ErrResponse},
		{"page", `<API?page=2>; rel="next"`, nil},
		{"page of another host", `<STORAGE/repos/metal-stack/metalctl/releases?page=2>; rel="next"`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHub(t)
			h.answer = func(w http.ResponseWriter, r *http.Request) bool {
				assert.Equal(t, "Bearer "+token, r.Header.Get("Authorization"))
				if r.URL.Query().Get("page") == "2" {
					_, _ = io.WriteString(w, `[{"tag_name":"v2.0.0"}]`)
					return true
				}
				link := strings.NewReplacer("API", h.api.URL+r.URL.Path, "STORAGE", h.storage.URL).Replace(tt.link)
				w.Header().Set("Link", link+`, <https://elsewhere.example/?page=99>; rel="last"`)
				_, _ = io.WriteString(w, `[{"tag_name":"v1.0.0"}]`)
				return true
			}
			rel, err := h.source(Options{Token: token}).Release(t.Context(), "")
			if tt.want != nil {
				require.ErrorIs(t, err, tt.want)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, "v2.0.0", rel.Version)
			for _, seen := range h.requests() {
				assert.NotContains(t, seen, "storage", "a link is not followed")
			}
		})
	}
	h := newHub(t) // a last page has links too
	h.answer = func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Link", `<https://elsewhere.example/next?rel=next>; rel="first"`)
		_, _ = io.WriteString(w, `[{"tag_name":"v1.0.0"}]`)
		return true
	}
	_, err := h.source(Options{}).Release(t.Context(), "")
	require.NoError(t, err)
}
