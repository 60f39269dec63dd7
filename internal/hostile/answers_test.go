package hostile

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
)

// exchange is one request and the connection to answer on, byte for byte.
type exchange struct {
	net.Conn
	host string // as it was dialled, with port
	r    *http.Request
	n    int           // how often the path was asked for before
	gone chan struct{} // closed when the client is
}

// behaviour is what a server does with a request.
type behaviour func(*exchange)

func (x *exchange) file() string { return path.Base(x.r.URL.Path) }

// say writes and reports whether the client still listens.
func (x *exchange) say(format string, args ...any) bool {
	_, err := fmt.Fprintf(x, format, args...)
	return err == nil
}

// sleep waits and reports whether the client still does.
func (x *exchange) sleep(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-x.gone:
		return false
	}
}

// answer sends a well-formed answer. More header lines come as "Name: value".
func (x *exchange) answer(status int, body []byte, header ...string) {
	head := fmt.Sprintf("HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Length: %d\r\n", status, http.StatusText(status), len(body))
	for _, h := range header {
		head += h + "\r\n"
	}
	if x.say("%s\r\n", head) {
		_, _ = x.Write(body)
	}
}

// content answers with a file, or the part of it that was asked for.
func (x *exchange) content(data []byte) {
	tag := "ETag: " + etag(data)
	var from int
	if _, err := fmt.Sscanf(x.r.Header.Get("Range"), "bytes=%d-", &from); err != nil || x.r.Header.Get("If-Range") != etag(data) {
		x.answer(200, data, tag)
		return
	}
	x.answer(206, data[from:], tag, fmt.Sprintf("Content-Range: bytes %d-%d/%d", from, len(data)-1, len(data)))
}

func etag(data []byte) string { return fmt.Sprintf("%q", digest(data).Hex()[:16]) }

// answers is a fixed answer.
func answers(status int, body string, header ...string) behaviour {
	return func(x *exchange) { x.answer(status, []byte(body), header...) }
}

// raw is a fixed answer, byte for byte, and the end of the connection.
func raw(text string) behaviour {
	return func(x *exchange) { _, _ = x.Write([]byte(text)) }
}

// redirects is a redirect to a location, in which SCHEME and PORT are ours.
func redirects(location string) behaviour {
	return func(x *exchange) { x.answer(302, []byte(marker), "Location: "+x.expand(location)) }
}

// expand fills in what the case runs over. The host is a new one each time for
// {n}.
func (x *exchange) expand(location string) string {
	scheme := "http"
	if _, ok := x.Conn.(interface{ NetConn() net.Conn }); ok { // TLS
		scheme = "https"
	}
	return strings.NewReplacer("{scheme}", scheme, "{path}", x.r.URL.EscapedPath(), "{n}", strconv.Itoa(x.n)).Replace(location)
}

// endless never stops sending.
func endless(head string, piece []byte) behaviour {
	return func(x *exchange) {
		if !x.say("%s", head) {
			return
		}
		for {
			if _, err := x.Write(piece); err != nil {
				return
			}
		}
	}
}

// drips sends a byte each time.
func drips(head, bytes string, every time.Duration) behaviour {
	return func(x *exchange) {
		ok := x.say("%s", head)
		for i := 0; ok; i++ {
			ok = x.sleep(every) && x.say("%s", bytes[i%len(bytes):i%len(bytes)+1])
		}
	}
}

// stalls sends a text and then nothing.
func stalls(text string) behaviour {
	return func(x *exchange) {
		if x.say("%s", text) {
			<-x.gone
		}
	}
}

// chunk is a piece of a chunked body.
func chunk(data []byte) []byte { return fmt.Appendf(nil, "%x\r\n%s\r\n", len(data), data) }

// bomb is 100 MiB in 100 kB.
var bomb = sync.OnceValue(func() []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	zeros := make([]byte, 1<<20)
	for range 100 {
		_, _ = w.Write(zeros)
	}
	_ = w.Close()
	return b.Bytes()
})
