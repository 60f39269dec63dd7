package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// pipes is a network in memory, so that these tests run on synctest's clock with
// the limits as they are.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// bubble runs f on a fake clock with a client of opts for a server with h.
func bubble(t *testing.T, opts Options, h http.HandlerFunc, f func(t *testing.T, c *Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{make(chan net.Conn), make(chan struct{})}
		s := &http.Server{Handler: h, ErrorLog: discard()}
		go func() { _ = s.Serve(p) }()
		// No limit of its own: only the watch can end a wait.
		tr := &http.Transport{DialContext: p.dial, DisableKeepAlives: true}
		opts.Client = &http.Client{Transport: tr, Timeout: opts.clientTimeout()}
		opts.AllowHTTP = true
		defer func() {
			time.Sleep(2 * time.Hour) // handlers and dials come to their end
			assert.NoError(t, s.Close())
			tr.CloseIdleConnections()
		}()
		f(t, New(opts))
	})
}

// clientTimeout smuggles a timeout for the caller's client into bubble.
func (o Options) clientTimeout() time.Duration {
	if o.Client == nil {
		return 0
	}
	return o.Client.Timeout
}

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

func TestHeaderNeverSent(t *testing.T) {
	n := 0
	h := func(w http.ResponseWriter, r *http.Request) {
		if n++; n > 1 {
			_, _ = io.WriteString(w, "second try")
			return
		}
		<-r.Context().Done()
	}
	bubble(t, Options{}, h, func(t *testing.T, c *Client) {
		data, _, err := get(t, c, Request{URL: "http://h/"})
		require.NoError(t, err)
		assert.Equal(t, "second try", string(data))
	})
	var tries atomic.Int32
	bubble(t, Options{}, func(_ http.ResponseWriter, r *http.Request) { tries.Add(1); <-r.Context().Done() }, func(t *testing.T, c *Client) {
		_, _, err := get(t, c, Request{URL: "http://h/?" + secret})
		fails(t, err, selfupdate.ErrNetwork)
		assert.ErrorContains(t, err, "no answer for 1m15s")
		assert.EqualValues(t, 5, tries.Load())
		_, err = c.HTTPClient().Get("http://h/?" + secret)
		fails(t, Clean(err), selfupdate.ErrNetwork)
	})
}

// A caller's Timeout is a limit for the header, not for the body.
func TestClientTimeout(t *testing.T) {
	h := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	bubble(t, Options{Client: &http.Client{Timeout: 7 * time.Second}}, h, func(t *testing.T, c *Client) {
		_, _, err := get(t, c, Request{URL: "http://h/"})
		fails(t, err, selfupdate.ErrNetwork)
		assert.ErrorContains(t, err, "no answer for 7s")
	})
}

func TestConnectNever(t *testing.T) {
	bubble(t, Options{Retries: -1}, nil, func(t *testing.T, _ *Client) {
		tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			time.Sleep(time.Hour) // net/http lets a dial outlive its request
			return nil, errors.New("too late")
		}}
		c := New(Options{Client: &http.Client{Transport: tr}, AllowHTTP: true, Retries: -1})
		_, _, err := get(t, c, Request{URL: "http://h/?" + secret})
		fails(t, err, selfupdate.ErrNetwork)
		assert.NotErrorIs(t, err, context.Canceled) // nobody cancelled: it is the limit
	})
}

// Bytes come in pieces with pauses. Nothing of this takes real time.
func TestPace(t *testing.T) {
	for _, tt := range []struct {
		name   string
		piece  int
		pause  time.Duration
		pieces int
		opts   Options
		want   error
		text   string
	}{
		{name: "slow, but steady", piece: 4 << 10, pause: 2 * time.Second, pieces: 300},
		{name: "pauses below the limit", piece: 256 << 10, pause: 59 * time.Second, pieces: 20},
		{name: "client with a timeout", piece: 4 << 10, pause: 2 * time.Second, pieces: 300, opts: Options{Client: &http.Client{Timeout: 10 * time.Second}}},
		{name: "stall", piece: 4 << 10, pause: 61 * time.Second, pieces: 20, want: selfupdate.ErrNetwork, text: "no byte for 1m0s"},
		{name: "stall, raised", piece: 256 << 10, pause: 61 * time.Second, pieces: 20, opts: Options{Stall: 2 * time.Minute}},
		{name: "drip", piece: 1, pause: time.Second, pieces: 100, want: selfupdate.ErrNetwork, text: "less than 1024 bytes a second"},
		{name: "drip, allowed", piece: 1, pause: time.Second, pieces: 100, opts: Options{MinRate: -1}},
		{name: "faster than asked", piece: 1 << 10, pause: time.Second, pieces: 100, opts: Options{MinRate: 1000}},
		{name: "slower than asked", piece: 1 << 10, pause: time.Second, pieces: 100, opts: Options{MinRate: 2000}, want: selfupdate.ErrNetwork, text: "less than 2000 bytes a second"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Length", fmt.Sprint(tt.piece*tt.pieces))
				for i := range tt.pieces {
					if i > 0 {
						time.Sleep(tt.pause)
					}
					_, _ = w.Write(make([]byte, tt.piece))
					flush(w)
				}
			}
			bubble(t, tt.opts, h, func(t *testing.T, c *Client) {
				data, _, err := get(t, c, Request{URL: "http://h/?" + secret})
				fails(t, err, tt.want)
				if tt.want == nil {
					assert.Len(t, data, tt.piece*tt.pieces)
				} else {
					assert.ErrorContains(t, err, tt.text)
				}
			})
		})
	}
}

// A new connection would be as slow.
func TestDripNotResumed(t *testing.T) {
	var n atomic.Int32
	h := func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		w.Header().Set("ETag", `"v1"`)
		for range 1000 {
			_, _ = w.Write([]byte{1})
			flush(w)
			time.Sleep(time.Second)
		}
	}
	bubble(t, Options{}, h, func(t *testing.T, c *Client) {
		_, _, err := get(t, c, Request{URL: "http://h/"})
		fails(t, err, selfupdate.ErrNetwork)
		assert.EqualValues(t, 1, n.Load())
	})
}

// A slow reader is no slow server.
func TestPaceOfTheReader(t *testing.T) {
	h := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 200<<10)) }
	bubble(t, Options{}, h, func(t *testing.T, c *Client) {
		b, err := c.Open(t.Context(), Request{URL: "http://h/"})
		require.NoError(t, err)
		for range 100 {
			time.Sleep(5 * time.Minute)
			_, err = io.ReadFull(b, make([]byte, 2<<10))
			require.NoError(t, err)
		}
		require.NoError(t, b.Close())
	})
}

// A server that stalls again and again comes to an end, with a validator too.
func TestStallForEver(t *testing.T) {
	n := 0
	h := func(w http.ResponseWriter, r *http.Request) {
		n++
		w.Header().Set("ETag", `"v1"`)
		w.Header().Set("Content-Length", "100000")
		if r.Header.Get("Range") != "" {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-99999/100000", n-1))
			w.Header().Set("Content-Length", fmt.Sprint(100001-n))
			w.WriteHeader(http.StatusPartialContent)
		}
		_, _ = w.Write([]byte{1})
		flush(w)
		<-r.Context().Done()
	}
	bubble(t, Options{}, h, func(t *testing.T, c *Client) {
		data, _, err := get(t, c, Request{URL: "http://h/?" + secret})
		fails(t, err, selfupdate.ErrNetwork)
		assert.ErrorContains(t, err, "5 resumes")
		assert.Len(t, data, 6)
		synctest.Wait()
		assert.Equal(t, 6, n)
	})
}

// All waits end with the context.
func TestCancelledWhileWaiting(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"header":  func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"backoff": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"retry after": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "100")
			w.WriteHeader(http.StatusTooManyRequests)
		},
		"body": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"v1"`)
			_, _ = io.WriteString(w, "x")
			flush(w)
			<-r.Context().Done()
		},
		"resume": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"v1"`)
			_, _ = io.WriteString(w, "x")
			hangUp(w)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{Backoff: time.Minute}, h, func(t *testing.T, c *Client) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(10*time.Second, cancel)
				start := time.Now() // synctest's: it moves only when all wait
				_, _, err := c.ReadAll(ctx, Request{URL: "http://h/?" + secret}, 100)
				fails(t, err, context.Canceled)
				assert.Equal(t, 10*time.Second, time.Since(start))

				ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				_, _, err = c.ReadAll(ctx, Request{URL: "http://h/?" + secret}, 100)
				fails(t, err, context.DeadlineExceeded)
			})
		})
	}
}

// Close from another goroutine ends a Read.
func TestCloseWhileReading(t *testing.T) {
	h := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		flush(w)
		<-r.Context().Done()
	}
	bubble(t, Options{}, h, func(t *testing.T, c *Client) {
		b, err := c.Open(t.Context(), Request{URL: "http://h/"})
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() { assert.NoError(t, b.Close()) })
		_, err = b.Read(make([]byte, 1))
		require.Error(t, err)
		require.False(t, errors.Is(err, io.EOF))
	})
}

// Retry-After is waited for up to MaxWait, and not beyond.
func TestRetryAfterObeyed(t *testing.T) {
	for _, tt := range []struct {
		name    string
		value   func() string
		maxWait time.Duration
		want    error
		waited  time.Duration
	}{
		{"none", func() string { return "" }, 0, nil, 0},
		{"seconds", func() string { return "100" }, 0, nil, 100 * time.Second},
		{"date", func() string { return time.Now().Add(100 * time.Second).UTC().Format(http.TimeFormat) }, 0, nil, 100 * time.Second},
		{"at the limit", func() string { return "120" }, 0, nil, 120 * time.Second},
		{"beyond", func() string { return "121" }, 0, selfupdate.ErrLimited, 0},
		{"beyond, raised", func() string { return "121" }, 5 * time.Minute, nil, 121 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := 0
			h := func(w http.ResponseWriter, _ *http.Request) {
				if n++; n == 1 {
					w.Header().Set("Retry-After", tt.value())
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			}
			bubble(t, Options{MaxWait: tt.maxWait}, h, func(t *testing.T, c *Client) {
				start := time.Now()
				_, _, err := get(t, c, Request{URL: "http://h/"})
				fails(t, err, tt.want)
				assert.GreaterOrEqual(t, time.Since(start), tt.waited)
				assert.Less(t, time.Since(start), tt.waited+5*time.Second)
			})
		})
	}
}

func TestBackoff(t *testing.T) {
	l := Options{}.limits()
	for n := range 100 {
		full := l.backoffMax
		if n < 5 {
			full = l.backoffMin << n
		}
		for range 20 {
			d := l.backoff(n)
			assert.GreaterOrEqual(t, d, full/2)
			assert.LessOrEqual(t, d, full)
		}
	}
}
