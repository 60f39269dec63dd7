package fetch

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

func TestOpen(t *testing.T) {
	noLeak(t)
	data := pattern(300_000)
	s, l := serveTLS(t, flaky(data, `"v1"`, 1<<30))
	got, b, err := get(t, quickClient(s), Request{URL: s.URL + "/a%2Bb/asset?sig=" + secret, Size: int64(len(data))})
	require.NoError(t, err)
	assert.Equal(t, data, got)
	assert.Equal(t, int64(0), b.Start)
	assert.Equal(t, int64(len(data)), b.Size)
	assert.Equal(t, `"v1"`, b.Validator)
	assert.Equal(t, s.URL+"/a%2Bb/asset", b.URL)

	r := l.requests()[0]
	assert.Equal(t, "identity", r.Header.Get("Accept-Encoding"))
	assert.Equal(t, "selfreconcile", r.Header.Get("User-Agent"))
	assert.Equal(t, secret, r.URL.Query().Get("sig"))
	assert.Equal(t, "/a%2Bb/asset", r.URL.EscapedPath())
}

func TestOpenClose(t *testing.T) {
	noLeak(t)
	s, _ := serve(t, flaky(make([]byte, 8<<20), "", 1<<30))
	b, err := quickClient().Open(t.Context(), Request{URL: s.URL})
	require.NoError(t, err)
	_, err = b.Read(make([]byte, 10))
	require.NoError(t, err)
	require.NoError(t, b.Close())
	require.NoError(t, b.Close())
	_, err = b.Read(make([]byte, 10))
	require.Error(t, err)
	require.NotErrorIs(t, err, io.EOF)
}

// A small body is read again from the start when it breaks without a validator.
func TestOpenSmall(t *testing.T) {
	for _, tt := range []struct {
		name     string
		size     int
		breaks   int // so many answers
		want     error
		requests int
	}{
		{"not broken", smallBody, 0, nil, 1},
		{"broken", smallBody, 2, nil, 3},
		{"broken for ever", smallBody, 100, selfupdate.ErrNetwork, 4},
		{"not small", smallBody + 1, 1, selfupdate.ErrNetwork, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			noLeak(t)
			n, data := 0, pattern(tt.size)
			s, l := serve(t, func(w http.ResponseWriter, r *http.Request) {
				cut := 1 << 30
				if n++; n <= tt.breaks {
					cut = tt.size / 2
				}
				flaky(data, "", cut)(w, r)
			})
			got, b, err := get(t, quickClient(), Request{URL: s.URL})
			fails(t, err, tt.want)
			assert.Len(t, l.requests(), tt.requests)
			if tt.want == nil {
				assert.Equal(t, data, got)
				assert.EqualValues(t, tt.size, b.Size)
				_, err = b.Read(make([]byte, 1))
				require.ErrorIs(t, err, errClosed)
			}
		})
	}
}

// One request each: what a server says about lengths must agree with itself and
// with the source.
func TestOpenSize(t *testing.T) {
	const ten = "0123456789"
	head := "HTTP/1.1 200 OK\r\nConnection: close\r\n"
	for _, tt := range []struct {
		name   string
		answer string
		size   int64
		want   error
	}{
		{"all agree", head + "Content-Length: 10\r\n\r\n" + ten, 10, nil},
		{"source silent", head + "Content-Length: 10\r\n\r\n" + ten, -1, nil},
		{"source disagrees", head + "Content-Length: 10\r\n\r\n" + ten, 11, selfupdate.ErrSize},
		{"length too large", head + "Content-Length: 20\r\n\r\n" + ten, -1, selfupdate.ErrNetwork},
		{"length too small", head + "Content-Length: 5\r\n\r\n" + ten, 10, selfupdate.ErrSize},
		{"length twice", head + "Content-Length: 10\r\nContent-Length: 11\r\n\r\n" + ten, -1, selfupdate.ErrNetwork},
		{"length negative", head + "Content-Length: -10\r\n\r\n" + ten, -1, selfupdate.ErrNetwork},
		{"no length", head + "\r\n" + ten, -1, nil},
		{"no length, size known", head + "\r\n" + ten, 10, nil},
		{"no length, half of the size", head + "\r\n" + ten[:5], 10, selfupdate.ErrNetwork},
		{"no length, more than the size", head + "\r\n" + ten + ten, 10, selfupdate.ErrSize},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\n" + ten, 10, nil},
		{"HTTP/1.0 closed half-way", "HTTP/1.0 200 OK\r\n\r\n" + ten[:5], 10, selfupdate.ErrNetwork},
		{"chunked", head + "Transfer-Encoding: chunked\r\n\r\na\r\n" + ten + "\r\n0\r\n\r\n", 10, nil},
		{"chunked cut", head + "Transfer-Encoding: chunked\r\n\r\na\r\n" + ten, -1, selfupdate.ErrNetwork},
		{"chunked, complete but short", head + "Transfer-Encoding: chunked\r\n\r\na\r\n" + ten + "\r\n0\r\n\r\n", 11, selfupdate.ErrSize},
		{"chunked, endless", head + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("a\r\n"+ten+"\r\n", 1000), 10, selfupdate.ErrSize},
		{"200 with Content-Range", head + "Content-Range: bytes 0-9/20\r\nContent-Length: 10\r\n\r\n" + ten, 20, selfupdate.ErrSize},
		{"200 with Content-Range, size unknown", head + "Content-Range: bytes 0-9/20\r\nContent-Length: 10\r\n\r\n" + ten, -1, nil},
		{"206 unasked", "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-9/10\r\nContent-Length: 10\r\n\r\n" + ten, -1, selfupdate.ErrResponse},
		{"not HTTP", "\x1b[31m" + secret + "\r\n\r\n", -1, selfupdate.ErrNetwork},
		{"bad status", "HTTP/1.1 2x0 \x1b[31m" + secret + "\r\n\r\n", -1, selfupdate.ErrNetwork},
		{"bad header", "HTTP/1.1 200 OK\r\n\x1b[31m " + secret + "\r\n\r\n", -1, selfupdate.ErrNetwork},
		{"bad header, no colon", "HTTP/1.1 200 OK\r\n" + secret + "\r\n\r\n", -1, selfupdate.ErrNetwork},
		{"hung up", "", -1, selfupdate.ErrNetwork},
	} {
		t.Run(tt.name, func(t *testing.T) {
			noLeak(t)
			url := raw(t, func(int, *http.Request) string { return tt.answer })
			got, _, err := get(t, quickClient(), Request{URL: url, Size: tt.size})
			fails(t, err, tt.want)
			if tt.want == nil {
				assert.Equal(t, ten, string(got))
			}
			assert.LessOrEqual(t, len(got), 10)
		})
	}
}

func TestOpenEncoding(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, _ = z.Write(make([]byte, 4<<20))
	require.NoError(t, z.Close())
	for _, tt := range []struct {
		name, encoding string
		want           error
	}{
		{"gzip", "gzip", selfupdate.ErrResponse},
		{"unknown", "x-" + secret, selfupdate.ErrResponse},
		{"two", "identity, br", selfupdate.ErrResponse},
		{"identity", "identity", nil},
		{"none", "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if tt.encoding != "" {
					w.Header()["Content-Encoding"] = []string{tt.encoding}
				}
				_, _ = w.Write(bomb.Bytes())
			})
			// A transport that would unpack by itself if it were allowed to.
			c := newClient(Options{Client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, AllowHTTP: true}, quick())
			got, _, err := get(t, c, Request{URL: s.URL})
			fails(t, err, tt.want)
			if tt.want == nil {
				assert.Equal(t, bomb.Len(), len(got))
			}
			_, _, err = c.ReadAll(t.Context(), Request{URL: s.URL}, 1<<20)
			fails(t, err, tt.want)
		})
	}
}

func TestOpenOffset(t *testing.T) {
	const all = "0123456789"
	part := func(span, body string) string {
		return fmt.Sprintf("HTTP/1.1 206 Partial Content\r\nContent-Range: bytes %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", span, len(body), body)
	}
	whole := "HTTP/1.1 200 OK\r\nETag: \"v2\"\r\nContent-Length: 10\r\nConnection: close\r\n\r\n" + all
	beyond := func(span string) string {
		return "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Range: " + span + "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
	}
	for _, tt := range []struct {
		name   string
		answer string
		offset int64
		start  int64
		body   string
		want   error
	}{
		{"206 as asked", part("5-9/10", all[5:]), 5, 5, all[5:], nil},
		{"206 with the same tag", strings.Replace(part("5-9/10", all[5:]), "Conn", "ETag: \"v1\"\r\nConn", 1), 5, 5, all[5:], nil},
		{"206 with another tag", strings.Replace(part("5-9/10", all[5:]), "Conn", "ETag: \"v2\"\r\nConn", 1), 5, 0, "", selfupdate.ErrResponse},
		{"206 from 0", part("0-9/10", all), 5, 0, "", selfupdate.ErrResponse},
		{"206 from 6", part("6-9/10", all[6:]), 5, 0, "", selfupdate.ErrResponse},
		{"206 of another size", part("5-9/11", all[5:]), 5, 0, "", selfupdate.ErrSize},
		{"206 longer than its range", part("5-9/10", all[4:]), 5, 0, "", selfupdate.ErrSize},
		{"206 without range", strings.Replace(part("", all[5:]), "Content-Range", "X", 1), 5, 0, "", selfupdate.ErrResponse},
		{"206 backwards", part("9-5/10", all[5:]), 5, 0, "", selfupdate.ErrResponse},
		{"206 beyond its size", part("5-10/10", all[4:]), 5, 0, "", selfupdate.ErrResponse},
		{"206 with signs", part("+5-+9/+10", all[5:]), 5, 0, "", selfupdate.ErrResponse},
		{"206 of unknown size", part("5-9/*", all[5:]), 5, 5, all[5:], nil},
		{"200", whole, 5, 0, all, nil},
		{"416, had it all", beyond("bytes */10"), 10, 10, "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var asked, condition string
			url := raw(t, func(_ int, r *http.Request) string {
				asked, condition = r.Header.Get("Range"), r.Header.Get("If-Range")
				return tt.answer
			})
			got, b, err := get(t, quickClient(), Request{URL: url, Size: 10, Offset: tt.offset, Validator: `"v1"`})
			fails(t, err, tt.want)
			assert.Equal(t, tt.body, string(got))
			assert.Equal(t, tt.start, b.Start)
			assert.Equal(t, fmt.Sprintf("bytes=%d-", tt.offset), asked)
			assert.Equal(t, `"v1"`, condition)
		})
	}
}

// "*" is fine when the source has told the size, else the end can't be known.
func TestOpenOffsetOfUnknownSize(t *testing.T) {
	url := raw(t, func(int, *http.Request) string {
		return "HTTP/1.1 206 X\r\nContent-Range: bytes 5-9/*\r\nContent-Length: 5\r\nConnection: close\r\n\r\n56789"
	})
	for size, want := range map[int64]error{10: nil, -1: selfupdate.ErrResponse} {
		_, _, err := get(t, quickClient(), Request{URL: url, Size: size, Offset: 5, Validator: `"v1"`})
		fails(t, err, want)
	}
}

// A 416 that does not say "you had it all" means that the asset is another one.
func TestOpenOffsetBeyond(t *testing.T) {
	for _, span := range []string{"bytes */4", "bytes */x", ""} {
		t.Run(span, func(t *testing.T) {
			s, l := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Range") != "" {
					w.Header().Set("Content-Range", span)
					w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
					return
				}
				_, _ = io.WriteString(w, "anew")
			})
			got, b, err := get(t, quickClient(), Request{URL: s.URL, Offset: 7, Validator: `"v1"`})
			require.NoError(t, err)
			assert.Equal(t, "anew", string(got))
			assert.Zero(t, b.Start)
			assert.Len(t, l.requests(), 2)
		})
	}
}

// Without a strong validator a part of one thing might follow a part of another.
func TestOpenOffsetWithoutValidator(t *testing.T) {
	s, l := serve(t, flaky(pattern(100), `W/"weak"`, 1000))
	for _, v := range []string{"", `W/"weak"`, "v1", "\"a\x1b\"", `"`} {
		got, b, err := get(t, quickClient(), Request{URL: s.URL, Offset: 7, Validator: v})
		require.NoError(t, err)
		assert.Equal(t, pattern(100), got)
		assert.Zero(t, b.Start)
		assert.Empty(t, b.Validator)
	}
	for _, r := range l.requests() {
		assert.Empty(t, r.Header.Get("Range"))
	}
}

func TestReadAll(t *testing.T) {
	noLeak(t)
	s, l := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Answer", "yes")
		switch r.URL.Path {
		case "/ten":
			_, _ = io.WriteString(w, "0123456789")
		case "/announced":
			w.Header().Set("Content-Length", fmt.Sprint(100<<20))
			_, _ = w.Write(make([]byte, 5)) // the announcement is enough
			hangUp(w)
		case "/endless":
			for {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}
	})
	c := quickClient()
	data, header, err := c.ReadAll(t.Context(), Request{URL: s.URL + "/ten"}, 10)
	require.NoError(t, err)
	assert.Equal(t, "0123456789", string(data))
	assert.Equal(t, "yes", header.Get("X-Answer"))
	for _, path := range []string{"/ten", "/announced", "/endless"} {
		before := len(l.requests())
		_, _, err = c.ReadAll(t.Context(), Request{URL: s.URL + path + "?sig=" + secret}, 9)
		fails(t, err, selfupdate.ErrTooLarge)
		assert.Len(t, l.requests(), before+1)
	}
}

// Metadata seldom has a validator: a connection that breaks starts again.
func TestReadAllBroken(t *testing.T) {
	for _, tt := range []struct {
		name  string
		cuts  int
		want  error
		times int
	}{
		{"not", 0, nil, 1},
		{"twice", 2, nil, 3},
		{"always", 100, selfupdate.ErrNetwork, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := 0
			s, l := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "10")
				_, _ = io.WriteString(w, "01234")
				if n++; n <= tt.cuts {
					hangUp(w)
				}
				_, _ = io.WriteString(w, "56789")
			})
			data, _, err := quickClient().ReadAll(t.Context(), Request{URL: s.URL}, 1000)
			fails(t, err, tt.want)
			if tt.want == nil {
				assert.Equal(t, "0123456789", string(data))
			}
			assert.Len(t, l.requests(), tt.times)
		})
	}
}

func TestReadAllNotModified(t *testing.T) {
	s, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `W/"v1"`)
		w.WriteHeader(http.StatusNotModified)
	})
	c := quickClient()
	_, header, err := c.ReadAll(t.Context(), Request{URL: s.URL, Header: http.Header{"If-None-Match": {`W/"v1"`}}}, 10)
	require.ErrorIs(t, err, ErrNotModified)
	assert.Equal(t, `W/"v1"`, header.Get("ETag"))
	_, _, err = c.ReadAll(t.Context(), Request{URL: s.URL}, 10)
	fails(t, err, selfupdate.ErrResponse) // the same answer, unasked
}

func TestOpenCancelled(t *testing.T) {
	noLeak(t)
	s, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	b, err := quickClient().Open(ctx, Request{URL: s.URL})
	require.NoError(t, err)
	_, err = b.Read(make([]byte, 5))
	require.NoError(t, err)
	cancel(errors.New("a reason with " + secret))
	_, err = b.Read(make([]byte, 5))
	fails(t, err, context.Canceled)
	require.NoError(t, b.Close())

	_, err = quickClient().Open(ctx, Request{URL: s.URL})
	fails(t, err, context.Canceled)
	_, _, err = quickClient().ReadAll(ctx, Request{URL: s.URL}, 10)
	fails(t, err, context.Canceled)
}
