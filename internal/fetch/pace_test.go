package fetch

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// breaking serves size bytes in pieces of one connection each.
type breaking struct {
	size, piece int
	header      time.Duration // before each answer
	hold        time.Duration // before the connection breaks
	busy        int           // answers of 503 before each resume
	n           int
}

func (s *breaking) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	off := 0
	_, _ = fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &off)
	time.Sleep(s.header)
	if s.n++; off > 0 && s.n%(s.busy+1) != 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	s.n = 0
	w.Header().Set("ETag", `"v1"`)
	w.Header().Set("Content-Length", fmt.Sprint(s.size-off))
	if off > 0 {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", off, s.size-1, s.size))
		w.WriteHeader(http.StatusPartialContent)
	}
	end := min(off+s.piece, s.size)
	_, _ = w.Write(make([]byte, end-off))
	flush(w)
	if end < s.size {
		time.Sleep(s.hold)
		hangUp(w)
	}
}

// Breaking the connection does not evade the minimum rate.
func TestPaceOverConnections(t *testing.T) {
	const s, kib = time.Second, 1 << 10
	for _, tt := range []struct {
		name string
		h    breaking
		opts Options
		slow bool
	}{
		{"broken within the grace minute", breaking{size: 512 * kib, piece: 14 * kib, header: 24 * s, hold: 54 * s}, Options{}, true},
		{"faster", breaking{size: 512 * kib, piece: 14 * kib, header: 4 * s, hold: 5 * s}, Options{}, false},
		{"allowed", breaking{size: 512 * kib, piece: 14 * kib, header: 24 * s, hold: 54 * s}, Options{MinRate: -1}, false},
		{"waiting for headers", breaking{size: 512 * kib, piece: 14 * kib, header: 70 * s}, Options{}, true},
		{"busy in between", breaking{size: 512 * kib, piece: 14 * kib, header: 24 * s, busy: 4}, Options{}, true},
		{"busy for a moment", breaking{size: 512 * kib, piece: 128 * kib, header: s, busy: 4}, Options{}, false},
		{"stalls in a row, then good", breaking{size: 10 * kib, piece: 2 * kib, hold: time.Hour}, Options{}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, tt.opts, tt.h.ServeHTTP, func(t *testing.T, c *Client) {
				start := time.Now()
				data, _, err := get(t, c, Request{URL: "http://h/?" + secret})
				if !tt.slow {
					require.NoError(t, err)
					assert.Len(t, data, tt.h.size)
					return
				}
				fails(t, err, selfupdate.ErrNetwork)
				assert.ErrorContains(t, err, "less than 1024 bytes a second over several connections")
				assert.Less(t, time.Since(start), c.lim.newPace().most+time.Duration(len(data)/kib+60)*s)
			})
		})
	}
}

// The time of a slow reader does not count, over connections either.
func TestPaceOfTheReaderOverConnections(t *testing.T) {
	h := &breaking{size: 400 << 10, piece: 40 << 10}
	bubble(t, Options{}, h.ServeHTTP, func(t *testing.T, c *Client) {
		b, err := c.Open(t.Context(), Request{URL: "http://h/"})
		require.NoError(t, err)
		for n := 0; n < h.size; {
			time.Sleep(time.Hour)
			k, err := b.Read(make([]byte, 8<<10))
			require.NoError(t, err)
			n += k
		}
		require.NoError(t, b.Close())
	})
}

// Bytes that come again earn nothing.
func TestPaceOfSkipping(t *testing.T) {
	const size, cut = 2 << 20, 1 << 20
	for _, tt := range []struct {
		name  string
		pause time.Duration // after each 16 KiB of the second answer
		slow  bool
	}{
		{"above the minimum, but for minutes", 10 * time.Second, true},
		{"good", time.Second, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := 0
			h := func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("ETag", `"v1"`)
				w.Header().Set("Content-Length", fmt.Sprint(size))
				if n++; n == 1 {
					_, _ = w.Write(make([]byte, cut))
					hangUp(w)
				}
				for range size / (16 << 10) {
					_, _ = w.Write(make([]byte, 16<<10))
					flush(w)
					time.Sleep(tt.pause)
				}
			}
			bubble(t, Options{}, h, func(t *testing.T, c *Client) {
				start := time.Now()
				_, _, err := get(t, c, Request{URL: "http://h/"})
				if !tt.slow {
					require.NoError(t, err)
					return
				}
				fails(t, err, selfupdate.ErrNetwork)
				assert.ErrorContains(t, err, "over several connections")
				assert.InDelta(t, c.lim.newPace().most.Seconds(), time.Since(start).Seconds(), 10)
			})
		})
	}
}

// A server without ranges sends everything again for each resume.
func TestTransferBounded(t *testing.T) {
	const size = 8 << 20
	for _, tt := range []struct {
		name   string
		step   int // how much further each answer gets
		length bool
		want   error
	}{
		{"little further each time", 65 << 10, true, selfupdate.ErrNetwork},
		{"little further each time, size unknown", 65 << 10, false, selfupdate.ErrNetwork},
		{"broken twice", 3 << 20, true, nil},
		{"broken twice, size unknown", 3 << 20, false, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var sent atomic.Int64
			cut, data := 0, make([]byte, size)
			s, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("ETag", `"v1"`)
				if tt.length {
					w.Header().Set("Content-Length", fmt.Sprint(size))
				}
				cut += tt.step
				n, _ := w.Write(data[:min(cut, size)])
				sent.Add(int64(n))
				if cut < size {
					hangUp(w)
				}
			})
			got, _, err := get(t, quickClient(), Request{URL: s.URL})
			fails(t, err, tt.want)
			if tt.want == nil {
				assert.Len(t, got, size)
			} else {
				assert.ErrorContains(t, err, "always starts from the beginning")
			}
			assert.LessOrEqual(t, sent.Load(), int64(3*size+freeSkips))
		})
	}
}

// There is an end of resumes, even when each brings something.
func TestResumesInAll(t *testing.T) {
	lim := quick()
	lim.progress = 1
	for _, tt := range []struct {
		name     string
		cut      int
		want     error
		requests int
	}{
		{"as many as allowed", 10, nil, 100},
		{"more", 5, selfupdate.ErrNetwork, 101},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, l := serve(t, flaky(pattern(1000), `"v1"`, tt.cut))
			_, _, err := get(t, newClient(Options{Client: trusting(), AllowHTTP: true}, lim), Request{URL: s.URL})
			fails(t, err, tt.want)
			assert.Len(t, l.requests(), tt.requests)
		})
	}
}

// Our limit for the header is not the caller's deadline.
func TestHeaderLimit(t *testing.T) {
	s, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	lim := quick()
	lim.header, lim.retries = 50*time.Millisecond, 0
	c := newClient(Options{AllowHTTP: true}, lim)
	_, _, err := get(t, c, Request{URL: s.URL + "/?" + secret})
	fails(t, err, selfupdate.ErrNetwork)
	assert.ErrorContains(t, err, "no answer within 50ms")
	require.NotErrorIs(t, err, context.DeadlineExceeded)

	lim.header = time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = newClient(Options{AllowHTTP: true}, lim).Open(ctx, Request{URL: s.URL})
	require.ErrorIs(t, err, context.DeadlineExceeded) // the control: the caller's own
}

// A date is equal, but the ETags are not.
func TestResumeByDateTags(t *testing.T) {
	const all = "0123456789"
	const date = "Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\nDate: Tue, 02 Jan 2024 00:00:00 GMT\r\n"
	part := func(tag string, from int, body string) string {
		return fmt.Sprintf("HTTP/1.1 206 P\r\n%s%sContent-Range: bytes %d-9/10\r\nContent-Length: %d\r\n\r\n%s", date, tag, from, 10-from, body)
	}
	lim := quick()
	lim.retries = 0 // nothing from the start
	for _, tt := range []struct {
		name          string
		second, third string // the ETags
		want          error
	}{
		{"none", "", "", nil},
		{"equal", "ETag: \"a\"\r\n", "ETag: \"a\"\r\n", nil},
		{"one only", "ETag: \"a\"\r\n", "", nil},
		{"different", "ETag: \"a\"\r\n", "ETag: \"b\"\r\n", selfupdate.ErrNetwork},
		{"weak", "ETag: \"a\"\r\n", "ETag: W/\"a\"\r\n", selfupdate.ErrNetwork},
	} {
		t.Run(tt.name, func(t *testing.T) {
			url := raw(t, func(n int, _ *http.Request) string {
				switch n {
				case 0:
					return "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 10\r\n\r\n" + all[:5]
				case 1:
					return part(tt.second, 5, all[5:7])
				}
				return part(tt.third, 7, all[7:])
			})
			data, _, err := get(t, newClient(Options{AllowHTTP: true}, lim), Request{URL: url})
			fails(t, err, tt.want)
			if tt.want == nil {
				assert.Equal(t, all, string(data))
			}
		})
	}
}
