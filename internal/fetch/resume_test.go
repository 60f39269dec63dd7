package fetch

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// The connection breaks every so many bytes.
func TestResume(t *testing.T) {
	data := pattern(100_000)
	for _, tt := range []struct {
		name     string
		tag      string
		cut      int
		want     error
		requests int
	}{
		{"not broken", `"v1"`, 1 << 30, nil, 1},
		{"broken once", `"v1"`, 60_000, nil, 2},
		{"broken often", `"v1"`, 3_000, nil, 34},
		{"no validator", "", 60_000, selfupdate.ErrNetwork, 1},
		{"weak validator", `W/"v1"`, 60_000, selfupdate.ErrNetwork, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			noLeak(t)
			s, l := serve(t, flaky(data, tt.tag, tt.cut))
			got, _, err := get(t, quickClient(), Request{URL: s.URL + "/?sig=" + secret, Size: -1})
			fails(t, err, tt.want)
			if tt.want == nil {
				assert.Equal(t, data, got)
			} else {
				assert.Equal(t, data[:len(got)], got)
			}
			assert.Len(t, l.requests(), tt.requests)
		})
	}
}

// Each connection brings less than what counts as progress.
func TestResumeBounded(t *testing.T) {
	for _, tt := range []struct {
		name     string
		progress int64
		want     error
		requests int
	}{
		{"no progress", 4000, selfupdate.ErrNetwork, 6},
		{"progress", 1000, nil, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lim := quick()
			lim.progress, lim.resumes = tt.progress, 5
			s, l := serve(t, flaky(pattern(10_000), `"v1"`, 1000))
			if tt.want != nil {
				lim.progress = 1 << 20
			}
			_, _, err := get(t, newClient(Options{Client: trusting(), AllowHTTP: true}, lim), Request{URL: s.URL})
			fails(t, err, tt.want)
			assert.Len(t, l.requests(), tt.requests)
		})
	}
}

// What the second connection answers, after the first broke behind five bytes.
func TestResumeAnswer(t *testing.T) {
	const all = "0123456789"
	ok := func(extra, body string) string {
		return fmt.Sprintf("HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\nConnection: close\r\n\r\n%s", extra, len(body), body)
	}
	part := func(extra, span, body string) string {
		return fmt.Sprintf("HTTP/1.1 206 Partial Content\r\n%sContent-Range: bytes %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", extra, span, len(body), body)
	}
	v1, v2 := "ETag: \"v1\"\r\n", "ETag: \"v2\"\r\n"
	cut := "Content-Length: 10\r\nConnection: close\r\n\r\n" + all[:5]
	for _, tt := range []struct {
		name   string
		second []string
		want   error
	}{
		{"206 as asked", []string{part(v1, "5-9/10", all[5:])}, nil},
		{"206 without tag", []string{part("", "5-9/10", all[5:])}, nil},
		{"206 of another state", []string{part(v2, "5-9/10", all[5:])}, selfupdate.ErrNetwork},
		{"206 of another size", []string{part(v1, "5-9/11", all[5:])}, selfupdate.ErrNetwork},
		{"206 from elsewhere", []string{part(v1, "0-9/10", all)}, selfupdate.ErrResponse},
		{"206 short", []string{part(v1, "5-6/10", all[5:7]), part(v1, "7-9/10", all[7:])}, nil},
		{"206 broken", []string{"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 5-9/10\r\nContent-Length: 5\r\n\r\n56", part(v1, "7-9/10", all[7:])}, nil},
		{"206 too long", []string{"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 5-9/10\r\n\r\n56789X"}, selfupdate.ErrSize},
		{"200 with the same tag", []string{ok(v1, all)}, nil},
		{"200 with the same tag, broken too early", []string{"HTTP/1.1 200 OK\r\n" + v1 + "Content-Length: 10\r\n\r\n012", ok(v1, all)}, nil},
		{"200 with another tag", []string{ok(v2, "abcdefghij")}, selfupdate.ErrNetwork},
		{"200 without tag", []string{ok("", all)}, selfupdate.ErrNetwork},
		{"200 with a weak tag", []string{ok("ETag: W/\"v1\"\r\n", all)}, selfupdate.ErrNetwork},
		{"200 with the same tag and another size", []string{ok(v1, all+all)}, selfupdate.ErrNetwork},
		{"416 of another size", []string{"HTTP/1.1 416 X\r\nContent-Range: bytes */4\r\nContent-Length: 0\r\n\r\n"}, selfupdate.ErrNetwork},
		{"416 of this size, but half is missing", []string{"HTTP/1.1 416 X\r\nContent-Range: bytes */5\r\nContent-Length: 0\r\n\r\n"}, selfupdate.ErrNetwork},
		{"gone", []string{"HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n"}, selfupdate.ErrNotFound},
		{"forbidden", []string{"HTTP/1.1 403 X\r\nContent-Length: 0\r\n\r\n"}, selfupdate.ErrResponse},
		{"unavailable, then as asked", []string{"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n", part(v1, "5-9/10", all[5:])}, nil},
		{"encoded", []string{part("Content-Encoding: gzip\r\n", "5-9/10", all[5:])}, selfupdate.ErrResponse},
	} {
		t.Run(tt.name, func(t *testing.T) {
			noLeak(t)
			url := raw(t, func(n int, r *http.Request) string {
				if n == 0 {
					return "HTTP/1.1 200 OK\r\n" + v1 + cut
				}
				if n > len(tt.second) {
					return ""
				}
				assert.Equal(t, `"v1"`, r.Header.Get("If-Range"))
				return tt.second[n-1]
			})
			got, _, err := get(t, quickClient(), Request{URL: url})
			fails(t, err, tt.want)
			if tt.want == nil {
				assert.Equal(t, all, string(got))
			} else {
				assert.Equal(t, all[:len(got)], string(got)) // never a byte of another state
			}
		})
	}
}

// The size is unknown and the connection breaks behind the last byte.
func TestResumeAtTheEnd(t *testing.T) {
	url := raw(t, func(n int, r *http.Request) string {
		if n == 0 {
			return "HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n"
		}
		return "HTTP/1.1 416 X\r\nContent-Range: bytes */5\r\nContent-Length: 0\r\n\r\n"
	})
	got, _, err := get(t, quickClient(), Request{URL: url, Size: -1})
	require.NoError(t, err)
	assert.Equal(t, "01234", string(got))
}

func TestResumeByDate(t *testing.T) {
	data := pattern(10_000)
	for _, tt := range []struct {
		name    string
		age     time.Duration
		change  bool
		ignores bool // answers 200 to a Range request
		want    error
	}{
		{"old", time.Hour, false, false, nil},
		{"changed meanwhile", time.Hour, true, false, selfupdate.ErrNetwork},
		{"old, but 200", time.Hour, false, true, selfupdate.ErrNetwork},
		{"too young to be strong", 10 * time.Second, false, false, selfupdate.ErrNetwork},
	} {
		t.Run(tt.name, func(t *testing.T) {
			modified, n := time.Now().Add(-tt.age), 0
			s, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if n++; n > 1 && tt.change {
					modified = modified.Add(time.Minute)
				}
				if tt.ignores {
					r.Header.Del("Range")
				}
				http.ServeContent(&cutter{w, 6000}, r, "", modified, bytes.NewReader(data))
			})
			got, b, err := get(t, quickClient(), Request{URL: s.URL})
			fails(t, err, tt.want)
			if tt.want == nil {
				assert.Equal(t, data, got)
				assert.Equal(t, modified.UTC().Format(http.TimeFormat), b.Validator)
			}
		})
	}
}

func TestResumeStalled(t *testing.T) {
	noLeak(t)
	data := pattern(10_000)
	n := 0
	s, l := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		if n++; n > 1 {
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		_, _ = w.Write(data[:4000])
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	lim := quick()
	lim.stall = 100 * time.Millisecond
	got, _, err := get(t, newClient(Options{Client: trusting(), AllowHTTP: true}, lim), Request{URL: s.URL})
	require.NoError(t, err)
	assert.Equal(t, data, got)
	assert.Equal(t, "bytes=4000-", l.requests()[1].Header.Get("Range"))
}

// A later call continues what an earlier one left.
func TestResumeLater(t *testing.T) {
	data := pattern(10_000)
	s, _ := serve(t, flaky(data, `"v1"`, 1<<30))
	c := quickClient()
	b, err := c.Open(t.Context(), Request{URL: s.URL})
	require.NoError(t, err)
	head := make([]byte, 1234)
	_, err = io.ReadFull(b, head)
	require.NoError(t, err)
	require.NoError(t, b.Close())
	rest, again, err := get(t, c, Request{URL: s.URL, Offset: 1234, Validator: b.Validator, Size: b.Size})
	require.NoError(t, err)
	assert.Equal(t, int64(1234), again.Start)
	assert.Equal(t, data, append(head, rest...))
}
