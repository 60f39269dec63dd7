package githubsource

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-github/v56/github"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// TestReleaseWrongRateLimit: whatever one answer says, the next call asks again.
// go-github, kept between the calls, would not.
func TestReleaseWrongRateLimit(t *testing.T) {
	const year2286 = "9999999999"
	for _, tt := range []struct {
		name     string
		status   int
		header   map[string]string
		silences bool // a go-github that is kept
	}{
		{"200, nothing left", 200, map[string]string{"X-RateLimit-Limit": "60", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": year2286}, true},
		{"200, a reset alone", 200, map[string]string{"X-RateLimit-Reset": year2286}, true},
		{"403, nothing left", 403, map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": year2286}, true},
		{"403, ten years", 403, map[string]string{"Retry-After": "315360000"}, true},
		{"403, overflow", 403, map[string]string{"Retry-After": "9223372036854775807"}, false},
		{"200", 200, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHub(t)
			h.add("v1.0.0", 1)
			wrong := true
			h.answer = func(w http.ResponseWriter, _ *http.Request) bool {
				if !wrong {
					return false
				}
				for k, v := range tt.header {
					w.Header().Set(k, v)
				}
				w.WriteHeader(tt.status)
				if tt.status == 200 {
					_, _ = io.WriteString(w, `[{"tag_name":"v0.9.0"}]`)
				} else {
					_, _ = io.WriteString(w, `{"documentation_url":"https://docs.github.com/x#secondary-rate-limits"}`)
				}
				return true
			}
			s := h.source(Options{})
			kept := github.NewClient(nil)
			kept.BaseURL = s.api
			ask := func() (err error) {
				req, err := kept.NewRequest(http.MethodGet, s.path(""), nil)
				require.NoError(t, err)
				_, err = kept.Do(t.Context(), req, nil)
				return err
			}
			_ = ask()
			_, err := s.Release(t.Context(), "")
			if tt.status == 200 {
				require.NoError(t, err)
			} else {
				var limited *selfupdate.RateLimitError
				require.ErrorAs(t, err, &limited)
				assert.Equal(t, time.Time{}, limited.Reset, "an absurd time is none")
			}

			wrong = false
			h.requests()
			rel, err := s.Release(t.Context(), "")
			require.NoError(t, err)
			assert.Equal(t, "v1.0.0", rel.Version)
			assert.Len(t, h.requests(), 1)
			if err := ask(); tt.silences {
				require.Error(t, err, "the control")
				assert.Empty(t, h.requests())
			} else {
				require.NoError(t, err)
			}
		})
	}
}
