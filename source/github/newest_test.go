package githubsource

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

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
	_, err := h.source(Options{Log: debug(&log)}).Release(t.Context(), "")
	require.NoError(t, err)
	assert.Contains(t, log.String(), "skipped")
	assert.NotContains(t, log.String(), "\x1b")
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

func TestReleaseUnreadableDate(t *testing.T) {
	for _, date := range []any{"yesterday", 17, []string{"x"}, ""} {
		h := newHub(t)
		h.add("v1.0.0", 2)["published_at"] = date
		h.add("v2.0.0", 2)
		var log bytes.Buffer
		s := h.source(Options{List: true, Log: debug(&log)})
		rel, err := s.Release(t.Context(), "")
		require.NoError(t, err)
		assert.Equal(t, "v2.0.0", rel.Version)
		assert.False(t, rel.Young)
		assert.Contains(t, log.String(), "date of a release ignored")

		rel, err = s.Release(t.Context(), "v1.0.0")
		require.NoError(t, err)
		assert.True(t, rel.Young, "as without a date")
	}
}
