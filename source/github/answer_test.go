package githubsource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

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
		{"null", 200, `null`, selfupdate.ErrResponse},
		{"another 2xx", 206, `{"tag_name":"v1.0.0"}`, selfupdate.ErrResponse},
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

func TestReleaseContextEnds(t *testing.T) {
	h := newHub(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := h.source(Options{}).Release(ctx, "")
	require.True(t, errors.Is(err, context.Canceled))
	assert.Empty(t, h.requests())
}
