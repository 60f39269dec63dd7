package githubsource

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// allocated returns all bytes that were allocated in do, by the server too.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestReleaseMemory(t *testing.T) {
	const most = 64 << 20
	const page = 31 << 20 // below fetch's own limit
	notes := strings.Repeat("n", 300<<10)
	var large []string
	for i := range perPage {
		large = append(large, fmt.Sprintf(`{"tag_name":"v1.0.%d","body":"%s","assets":[]}`, i, notes))
	}
	for _, tt := range []struct {
		name               string
		status             int
		start, repeat, end string
		times              int
		want               error
	}{
		{"releases", 200, "[{}", ",{}", "]", page / 3, selfupdate.ErrTooLarge},
		{"assets", 200, `[{"tag_name":"v1.0.0","assets":[{}`, ",{}", "]}]", page / 3, selfupdate.ErrTooLarge},
		{"assets of less than an object's limit", 200, `[{"tag_name":"v1.0.0","assets":[{}`, ",{}", "]}]", maxObject / 4, selfupdate.ErrTooLarge},
		{"notes", 200, `[{"tag_name":"v1.0.0","body":"`, "nnnn", `"}]`, page / 4, selfupdate.ErrTooLarge},
		{"a tag", 200, `[{"tag_name":"v1.0.0-`, "nnnn", `"}]`, maxObject / 8, selfupdate.ErrNotFound},
		{"blanks", 200, "[", "    ", "]", page / 4, selfupdate.ErrTooLarge},
		{"brackets", 200, "[", "[[[[", "", page / 4, selfupdate.ErrResponse},
		{"a refusal", 403, "", "nnnn", "", page / 4, selfupdate.ErrResponse},
		{"accepted", 202, "[{}", ",{}", "]", page / 3, selfupdate.ErrResponse},
		{"the control: a full page of large releases", 200, "[" + strings.Join(large, ","), "", "]", 0, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHub(t)
			h.answer = func(w http.ResponseWriter, _ *http.Request) bool {
				w.WriteHeader(tt.status)
				_, err := io.WriteString(w, tt.start)
				const chunk = 1 << 14
				some := strings.Repeat(tt.repeat, chunk)
				for n := tt.times; n > 0 && err == nil; n -= chunk {
					_, err = io.WriteString(w, some[:len(tt.repeat)*min(n, chunk)])
				}
				_, _ = io.WriteString(w, tt.end)
				return true
			}
			s := h.source(Options{})
			var err error
			got := allocated(func() { _, err = s.Release(t.Context(), "") })
			if tt.want == nil {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, tt.want)
			}
			assert.Less(t, got, uint64(most))
		})
	}

	// The control: without a count, a fifteenth of the page is more than the bound.
	var list []release
	got := allocated(func() {
		require.NoError(t, json.Unmarshal([]byte("[{}"+strings.Repeat(",{}", page/3/15)+"]"), &list))
	})
	assert.Greater(t, got, uint64(most))
}

func TestReleaseCounts(t *testing.T) {
	objects := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("{},", n), ",") + "]" }
	for _, tt := range []struct {
		name     string
		releases int
		assets   int
		want     error
	}{
		{"as many as there may be", 99, 1000, nil},
		{"a release more", 100, 1000, selfupdate.ErrTooLarge},
		{"an asset more", 99, 1001, selfupdate.ErrTooLarge},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHub(t)
			h.answer = func(w http.ResponseWriter, r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, "/assets") {
					_, _ = io.WriteString(w, "[]")
					return true
				}
				list := strings.TrimPrefix(objects(tt.releases), "[")
				_, _ = io.WriteString(w, `[{"tag_name":"v1.0.0","assets":`+objects(tt.assets)+"},"+list)
				return true
			}
			_, err := h.source(Options{}).Release(t.Context(), "")
			if tt.want == nil {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, tt.want)
			}
		})
	}
}

func TestReleaseAssetPagesAreCounted(t *testing.T) {
	for n, want := range map[int]error{maxAssets: nil, maxAssets + 1: selfupdate.ErrTooLarge} {
		h := newHub(t)
		h.embed = 30
		var all []map[string]any
		for i := range n {
			all = append(all, h.asset(i, fmt.Sprintf("tool-%d", i)))
		}
		h.add("v1.0.0", 1, all...)
		rel, err := h.source(Options{}).Release(t.Context(), "")
		if want == nil {
			require.NoError(t, err)
			assert.Len(t, rel.Assets, n)
		} else {
			require.ErrorIs(t, err, want)
		}
	}
}
