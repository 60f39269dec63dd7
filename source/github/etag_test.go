package githubsource

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tagged answers as the API does, with the given ETag, and notes what was sent
// along.
func tagged(h *hub, etag string, status *int) (sent *string) {
	sent = new(string)
	h.answer = func(w http.ResponseWriter, r *http.Request) bool {
		*sent = r.Header.Get("If-None-Match")
		w.Header().Set("ETag", etag)
		w.WriteHeader(*status)
		if strings.Contains(r.URL.Path, "/tags/") {
			_, _ = io.WriteString(w, `{"tag_name":"v1.0.0"}`)
		} else {
			_, _ = io.WriteString(w, `[{"tag_name":"v1.0.0"}]`)
		}
		return true
	}
	return sent
}

func TestReleaseETag(t *testing.T) {
	for _, tt := range []struct {
		name, etag string
		kept       bool
	}{
		{"weak", `W/"5d41402abc4b2a76"`, true},
		{"strong", `"5d41"`, true},
		{"as long as there may be", `"` + strings.Repeat("a", 254) + `"`, true},
		{"longer", `"` + strings.Repeat("a", 255) + `"`, false},
		{"far longer", `"` + strings.Repeat("a", 100<<10) + `"`, false},
		{"blank inside", `"a b"`, false},
		{"tab inside", "\"a\tb\"", false},
		{"not ASCII", `"ä"`, false},
		{"two", `"a", "b"`, false},
		{"any", `*`, false},
		{"without quotes", `abc`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, version := range []string{"", "v1.0.0"} {
				h, status := newHub(t), 200
				sent := tagged(h, tt.etag, &status)
				s := h.source(Options{List: true})
				for range 2 {
					_, err := s.Release(t.Context(), version)
					require.NoError(t, err)
				}
				if tt.kept {
					assert.Equal(t, tt.etag, *sent)
				} else {
					assert.Empty(t, *sent)
				}
			}
		})
	}
}

func TestReleaseETagForgotten(t *testing.T) {
	for refusal, kept := range map[int]bool{400: false, 403: false, 412: false, 431: false, 501: false, 200: true} {
		for _, version := range []string{"", "v1.0.0"} {
			h, status := newHub(t), 200
			sent := tagged(h, `"5d41"`, &status)
			s := h.source(Options{List: true})
			_, err := s.Release(t.Context(), version)
			require.NoError(t, err)

			status = refusal
			_, err = s.Release(t.Context(), version)
			assert.Equal(t, kept, err == nil)
			assert.Equal(t, `"5d41"`, *sent, "the control: it was asked with one")

			status = http.StatusOK
			_, err = s.Release(t.Context(), version)
			require.NoError(t, err)
			assert.Equal(t, kept, *sent != "", "after status %d", refusal)
		}
	}
}
