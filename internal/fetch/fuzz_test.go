package fetch

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/metal-stack/selfreconcile/internal/corpus"
)

func FuzzContentRange(f *testing.F) {
	corpus.Add(f)
	for _, s := range []string{"bytes 5-9/10", "bytes 5-9/*", "bytes */10", "bytes 9-5/10", "bytes +5-9/10", "items 1-2/3", "bytes 0-18446744073709551615/*"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parseContentRange(s)
		if err != nil {
			return
		}
		if p.start < 0 || p.end <= p.start || p.total >= 0 && p.end > p.total {
			t.Fatalf("%q: %+v", s, p)
		}
		total := "*"
		if p.total >= 0 {
			total = fmt.Sprint(p.total)
		}
		again, err := parseContentRange(fmt.Sprintf("bytes %d-%d/%s", p.start, p.end-1, total))
		if err != nil || again != p {
			t.Fatalf("%q: %+v, then %+v, %v", s, p, again, err)
		}
	})
}

func FuzzRetryAfter(f *testing.F) {
	corpus.Add(f)
	for _, s := range []string{"", "0", "120", "-1", "9223372036854775807", "Fri, 31 Dec 9999 23:59:59 GMT"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, ok := retryAfter(&http.Response{Header: http.Header{"Retry-After": {s}}})
		if d < 0 || d > 365*24*time.Hour || !ok && d != 0 {
			t.Fatalf("%q: %v, %v", s, d, ok)
		}
	})
}

// A segment that passes stays one segment, comes back as it was, and the address
// for people is printable.
func FuzzSegment(f *testing.F) {
	corpus.Add(f)
	for _, s := range []string{"v1.2.3+fw1", "..", "a/b", "a%2fb", "{x}", "a\x1bb", "a?b#c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := url.Parse("https://h/dir/" + EscapeSegment(s))
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		if strings.ContainsAny(Display(u), "\x00\x1b\n?#+") {
			t.Fatalf("%q: %q", s, Display(u))
		}
		if CheckSegment(s) != nil {
			return
		}
		if u.Path != "/dir/"+s || strings.Count(u.EscapedPath(), "/") != 2 || u.RawQuery != "" || u.JoinPath().String() != u.String() {
			t.Fatalf("%q: %q", s, u)
		}
	})
}
