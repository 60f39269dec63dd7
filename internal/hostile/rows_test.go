package hostile

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/metal-stack/selfreconcile/selfupdate"
	"github.com/metal-stack/selfreconcile/signature"
)

// Where a release comes from.
const (
	byURL    = iota // source/http
	byTag           // source/github without the API
	byList          // source/github, the API without a token
	byAPI           // source/github with a token
	byNewest        // the same, without a tag
)

// Why its bytes may run.
const (
	unsigned = iota
	pinned
	byMinisign
	byECDSA
	byEither
)

// row is one thing that a server may do.
type row struct {
	name        string
	from, trust int
	tlsOnly     bool
	waits       bool // it takes time

	do          func(*world, *exchange) bool // instead of the usual answer; false: the usual one
	json        func(release map[string]any) // changes what the API says
	certificate func(*testing.T, *network) *tls.Certificate
	greet       func(net.Conn) bool
	config      func(*selfupdate.Config)              // in the control too
	resign      func(*world, minisigner, ecdsaSigner) // makes w.evil

	want error // nil: it gets installed all the same
}

// at answers for one file, at every host that a release is on.
func at(file string, do behaviour) func(*world, *exchange) bool {
	return func(_ *world, x *exchange) bool {
		host, _, _ := net.SplitHostPort(x.host)
		mine := x.file() == file && !foreign(x.host) && host != web
		if mine {
			do(x)
		}
		return mine
	}
}

// besides answers for all files but one.
func besides(file string, do behaviour) func(*world, *exchange) bool {
	return func(_ *world, x *exchange) bool {
		if x.file() == file {
			return false
		}
		do(x)
		return true
	}
}

// once answers so the first time only.
func once(file string, do behaviour) func(*world, *exchange) bool {
	inner := at(file, do)
	return func(w *world, x *exchange) bool { return x.n == 0 && inner(w, x) }
}

// then answers so the first time, and otherwise later.
func then(file string, first, later behaviour) func(*world, *exchange) bool {
	return at(file, func(x *exchange) {
		if x.n == 0 {
			first(x)
		} else {
			later(x)
		}
	})
}

// anywhere answers whatever is asked, wherever.
func anywhere(do behaviour) func(*world, *exchange) bool {
	return func(_ *world, x *exchange) bool { do(x); return true }
}

// ofAPI answers for the API's JSON.
func ofAPI(do behaviour) func(*world, *exchange) bool {
	return func(_ *world, x *exchange) bool {
		mine := !foreign(x.host) && strings.HasPrefix(x.r.URL.Path, "/repos/") && !strings.Contains(x.r.URL.Path, "/assets/")
		if mine {
			do(x)
		}
		return mine
	}
}

// asset changes the first asset in the API's answer.
func asset(key string, value any) func(map[string]any) {
	return func(rel map[string]any) { rel["assets"].([]map[string]any)[0][key] = value }
}

// beside adds an asset before the others.
func beside(name string) func(map[string]any) {
	return func(rel map[string]any) {
		evil := map[string]any{"id": 99, "name": name, "state": "uploaded", "size": 10, "browser_download_url": "https://" + storage + "/" + marker}
		rel["assets"] = append([]map[string]any{evil}, rel["assets"].([]map[string]any)...)
	}
}

// alone leaves an asset of that name as the only one.
func alone(name string) func(map[string]any) {
	return func(rel map[string]any) {
		rel["assets"] = rel["assets"].([]map[string]any)[:1]
		asset("name", name)(rel)
	}
}

// onlyAsset takes whatever the release has.
func onlyAsset(c *selfupdate.Config) { c.Asset = "" }

const (
	ok       = "HTTP/1.1 200 OK\r\nConnection: close\r\n"
	chunked  = ok + "Transfer-Encoding: chunked\r\n\r\n"
	tagged   = "ETag: \"one\"\r\n"
	portal   = "<!DOCTYPE html><html><title>" + marker + "</title>log in</html>"
	tomorrow = "86400"
)

// half breaks off in the middle, with a validator.
func half(data []byte) behaviour {
	return raw(fmt.Sprintf("%sETag: %s\r\nContent-Length: %d\r\n\r\n%s", ok, etag(data), len(data), data[:len(data)/2]))
}

var other = bytes.ReplaceAll(program, []byte("v2"), []byte("v3"))

func part(from, to, total int, tag string, data []byte) behaviour {
	return func(x *exchange) {
		x.answer(206, data, fmt.Sprintf("Content-Range: bytes %d-%d/%d", from, to, total), "ETag: "+tag)
	}
}

func long(n int) string { return strings.Repeat("a", n) }

// groups are the table, as docs/trust.md shows it.
var groups = []struct {
	title string
	rows  []row
}{
	{"Bodies", bodies},
	{"Headers", headers},
	{"Lengths", lengths},
	{"Ranges and files that change", ranges},
	{"Redirects and credentials", redirections},
	{"The same answer for all", answersOfAll},
	{"TLS and certificates", certificates},
	{"GitHub's API", ofGitHub},
	{"Checksum files", checksums},
	{"Signatures", signatures},
}

func concat(groups ...[]row) (all []row) {
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}

var mib = bytes.Repeat([]byte(marker), 1<<20/len(marker))

var bodies = []row{
	{name: "endless body, chunked", do: at("app", endless(chunked, chunk(mib))), want: selfupdate.ErrTooLarge},
	{name: "endless body until the connection ends", do: at("app", endless("HTTP/1.0 200 OK\r\n\r\n", mib)), want: selfupdate.ErrTooLarge},
	{name: "a terabyte announced", do: at("app", endless(ok+"Content-Length: 1099511627776\r\n\r\n", mib)), want: selfupdate.ErrTooLarge},
	{name: "endless body after a redirect to a storage host", from: byTag, do: at("app", endless(chunked, chunk(mib))), want: selfupdate.ErrTooLarge},
	{name: "endless body, larger than the API says", from: byAPI, do: at("app", endless(chunked, chunk(mib))), want: selfupdate.ErrSize},
	{name: "slow drip", waits: true, do: at("app", drips(ok+"Content-Length: 1000000\r\n\r\n", "x", 2*time.Second)), want: selfupdate.ErrNetwork},
	{name: "slow drip of a checksum file", waits: true, do: at("app.sha256", drips(ok+"Content-Length: 100\r\n\r\n", "x", 59*time.Second)), want: selfupdate.ErrNetwork},
	{name: "slow drip in chunks without a size", waits: true, do: at("app", drips(chunked, "1\r\nx\r\n", time.Second)), want: selfupdate.ErrNetwork},
	{name: "drips and hangs up, again and again", waits: true, do: at("app", func(x *exchange) {
		var from int
		status, at := "200 OK", ""
		if _, err := fmt.Sscanf(x.r.Header.Get("Range"), "bytes=%d-", &from); err == nil {
			status, at = "206 Partial Content", fmt.Sprintf("Content-Range: bytes %d-%d/%d\r\n", from, len(program)-1, len(program))
		}
		if x.say("HTTP/1.1 %s\r\nConnection: close\r\n%s%sContent-Length: %d\r\n\r\n", status, tagged, at, len(program)-from) && x.sleep(time.Second) {
			x.say("%s", program[from:from+1])
		}
	}), want: selfupdate.ErrNetwork},
	{name: "stall in the body", waits: true, do: at("app", stalls(ok+"Content-Length: 1000000\r\n\r\n"+marker)), want: selfupdate.ErrNetwork},
	{name: "stall in the body, at each resume", waits: true, do: at("app", stalls(ok+tagged+"Content-Length: 1000000\r\n\r\n"+marker)), want: selfupdate.ErrNetwork},
	{name: "stall once", waits: true, do: once("app", stalls(fmt.Sprintf("%sETag: %s\r\nContent-Length: %d\r\n\r\n%s", ok, etag(program), len(program), program[:1000]))), want: nil},
	{name: "100 MiB in 100 kB of gzip", do: at("app", func(x *exchange) { x.answer(200, bomb(), "Content-Encoding: gzip") }), want: selfupdate.ErrResponse},
	{name: "100 MiB in 100 kB of gzip, as every checksum file", do: besides("app", func(x *exchange) { x.answer(200, bomb(), "Content-Encoding: gzip") }), want: selfupdate.ErrResponse},
	{name: "100 MiB in 100 kB of gzip, as the API's answer", from: byAPI, do: ofAPI(func(x *exchange) { x.answer(200, bomb(), "Content-Encoding: gzip") }), want: selfupdate.ErrResponse},
	{name: "gzip that nothing announces", do: at("app", func(x *exchange) { x.answer(200, bomb()) }), want: selfupdate.ErrDigestMismatch},
	{name: "gzip as a transfer encoding", waits: true, do: at("app", raw(ok+"Transfer-Encoding: gzip\r\n\r\n"+marker)), want: selfupdate.ErrNetwork},
	{name: "an encoding of an unheard name", do: at("app", answers(200, "x", "Content-Encoding: \xff\xfeMARK")), want: selfupdate.ErrResponse},
}

var headers = []row{
	{name: "header never sent", waits: true, do: at("app", stalls("")), want: selfupdate.ErrNetwork},
	{name: "header never sent by the API", from: byAPI, waits: true, do: ofAPI(stalls("")), want: selfupdate.ErrNetwork},
	{name: "header never ends, slowly", waits: true, do: at("app", drips(ok+"X-A: ", "a", time.Second)), want: selfupdate.ErrNetwork},
	{name: "header never ends, fast", waits: true, do: at("app", endless(ok, []byte("X-A: "+long(1000)+"\r\n"))), want: selfupdate.ErrNetwork},
	{name: "header of one endless line", waits: true, do: at("app", endless(ok+"X-A: ", []byte(long(10000)))), want: selfupdate.ErrNetwork},
	{name: "early hints without end", waits: true, do: at("app", endless("", []byte("HTTP/1.1 103 Early Hints\r\nX-A: "+long(100)+"\r\n\r\n"))), want: selfupdate.ErrNetwork},
	{name: "closes without a word", waits: true, do: at("app", raw("")), want: selfupdate.ErrNetwork},
	{name: "not HTTP", waits: true, do: at("app", raw(marker+"\r\n\r\n")), want: selfupdate.ErrNetwork},
	{name: "an HTTP version of its own", waits: true, do: at("app", raw("HTTP/"+marker+" 200 OK\r\n\r\n")), want: selfupdate.ErrNetwork},
	{name: "a status that is no number", waits: true, do: at("app", raw("HTTP/1.1 \x1b[31 OK\r\n\r\n")), want: selfupdate.ErrNetwork},
	{name: "a status text that is a terminal's command", do: at("app", raw("HTTP/1.1 418 \x1b[31mMARK\xff\x00\r\nContent-Length: 0\r\n\r\n")), want: selfupdate.ErrResponse},
	{name: "a header line that is none", waits: true, do: at("app", raw(ok+"\x1b[31mMARK\r\n\r\n")), want: selfupdate.ErrNetwork},
	{name: "a header with ESC", waits: true, do: at("app", answers(200, "", "X-A: "+"\x1b[31m")), want: selfupdate.ErrNetwork},
	{name: "a header with NUL", waits: true, do: at("app", raw(ok+"X-A: \x00\x1b[31m\r\nContent-Length: 3\r\n\r\nabc")), want: selfupdate.ErrNetwork},
}

var lengths = []row{
	{name: "Content-Length too long", do: at("app", raw(fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", ok, len(program)+1, program))), want: selfupdate.ErrNetwork},
	{name: "Content-Length too long, at each resume", waits: true, do: at("app", raw(fmt.Sprintf("%s%sContent-Length: %d\r\n\r\n%s", ok, tagged, len(program)+1, program))), want: selfupdate.ErrNetwork},
	{name: "Content-Length too short", do: at("app", raw(fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", ok, len(program)-1, program))), want: selfupdate.ErrDigestMismatch},
	{name: "Content-Length 0", do: at("app", raw(ok+"Content-Length: 0\r\n\r\n")), want: selfupdate.ErrDigestMismatch},
	{name: "Content-Length other than the API says", from: byAPI, do: at("app", answers(200, "short")), want: selfupdate.ErrSize},
	{name: "no Content-Length, all bytes", do: at("app", raw("HTTP/1.0 200 OK\r\n\r\n"+string(program))), want: nil},
	{name: "no Content-Length, HTTP/1.0, closes half-way", do: at("app", raw("HTTP/1.0 200 OK\r\n\r\n"+string(program[:len(program)/2]))), want: selfupdate.ErrDigestMismatch},
	{name: "no Content-Length, HTTP/1.0, closes half-way, the size known", from: byAPI, do: at("app", raw("HTTP/1.0 200 OK\r\n\r\n"+string(program[:len(program)/2]))), want: selfupdate.ErrNetwork},
	{name: "HTTP/1.0 with Content-Length, closes half-way", do: at("app", raw(fmt.Sprintf("HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(program), program[:len(program)/2]))), want: selfupdate.ErrNetwork},
	{name: "chunks end without the last one", do: at("app", raw(chunked+string(chunk(program)))), want: selfupdate.ErrNetwork},
	{name: "chunks of an unheard length", do: at("app", raw(chunked+marker+"\r\n")), want: selfupdate.ErrNetwork},
	{name: "two Content-Lengths", waits: true, do: at("app", raw(ok+"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab")), want: selfupdate.ErrNetwork},
	{name: "a Content-Length that is no number", waits: true, do: at("app", raw(ok+"Content-Length: \x1b[31mMARK\r\n\r\n")), want: selfupdate.ErrNetwork},
	{name: "a trailer that is none", do: at("app", raw(ok+"Transfer-Encoding: chunked\r\nTrailer: X\r\n\r\n"+string(chunk(program))+"0\r\n\x1b[31mMARK\x00\r\n\r\n")), want: selfupdate.ErrNetwork},
}

var ranges = []row{
	{name: "breaks once", waits: true, do: once("app", half(program)), want: nil},
	{name: "200 to a Range request, the same bytes", waits: true, do: then("app", half(program), func(x *exchange) { x.answer(200, program, "ETag: "+etag(program)) }), want: nil},
	{name: "200 to a Range request, no validator", waits: true, do: then("app", half(program), func(x *exchange) { x.answer(200, program) }), want: selfupdate.ErrNetwork},
	{name: "200 to a Range request, always breaking", waits: true, do: at("app", half(program)), want: selfupdate.ErrNetwork},
	{name: "206 with another start", waits: true, do: then("app", half(program), part(7, len(program)-1, len(program), etag(program), program[7:])), want: selfupdate.ErrResponse},
	{name: "206 with another start, nothing asked for", do: at("app", part(7, len(program)-1, len(program), etag(program), program[7:])), want: selfupdate.ErrResponse},
	{name: "206 with another size", waits: true, do: then("app", half(program), part(len(program)/2, len(program)+8, len(program)+9, etag(program), append(program[len(program)/2:len(program):len(program)], 1, 2, 3, 4, 5, 6, 7, 8, 9))), want: selfupdate.ErrNetwork},
	{name: "206 with a malformed Content-Range", waits: true, do: then("app", half(program), func(x *exchange) {
		x.answer(206, program, "Content-Range: bytes MARK-\xff/\xfe", "ETag: "+etag(program))
	}), want: selfupdate.ErrResponse},
	{name: "416 to a Range request", waits: true, do: then("app", half(program), answers(416, marker, "Content-Range: bytes */"+"\xffMARK")), want: selfupdate.ErrNetwork},
	{name: "asset changed between retries", waits: true, do: then("app", half(program), func(x *exchange) { x.content(other) }), want: selfupdate.ErrNetwork},
	{name: "asset changed between retries, under the same ETag", waits: true, do: then("app", half(program), part(len(program)/2, len(program)-1, len(program), etag(program), other[len(program)/2:])), want: selfupdate.ErrDigestMismatch},
	{name: "asset changed after the checksum file", do: at("app", func(x *exchange) { x.content(other) }), want: selfupdate.ErrDigestMismatch},
	{name: "an ETag that is no text", do: then("app", raw(fmt.Sprintf("%sETag: \"\xffMARK\"\r\nContent-Length: %d\r\n\r\n%s", ok, len(program), program[:99999])), func(x *exchange) { x.content(program) }), want: selfupdate.ErrNetwork},
}

var redirections = []row{
	{name: "redirects to itself", do: at("app", redirects("{path}")), want: selfupdate.ErrResponse},
	{name: "redirects in a circle between two hosts", do: func(w *world, x *exchange) bool {
		to := home
		if strings.HasPrefix(x.host, home) {
			to = "elsewhere.example.net"
		}
		if x.file() != "app" {
			return false
		}
		redirects("{scheme}://" + to + "{path}")(x)
		return true
	}, want: selfupdate.ErrResponse},
	{name: "redirects to a new host each time", do: func(_ *world, x *exchange) bool {
		if x.file() != "app" {
			return false
		}
		redirects("{scheme}://a" + long(len(x.host)%40) + ".example.net{path}")(x)
		return true
	}, want: selfupdate.ErrResponse},
	{name: "the API redirects to itself", from: byAPI, do: ofAPI(redirects("{path}")), want: selfupdate.ErrResponse},

	{name: "redirects from https to http", tlsOnly: true, do: at("app", redirects("http://"+home+"{path}")), want: selfupdate.ErrInsecure},
	{name: "redirects from https to http on another host", tlsOnly: true, do: at("app", redirects("http://elsewhere.example.net{path}")), want: selfupdate.ErrInsecure},
	{name: "redirects from https to http, the release signed", tlsOnly: true, trust: byMinisign, do: at("app", redirects("http://"+home+"{path}")), want: selfupdate.ErrInsecure},
	{name: "redirects from https to http, the digest pinned", tlsOnly: true, trust: pinned, do: at("app", redirects("http://"+home+"{path}")), want: selfupdate.ErrInsecure},
	{name: "the API redirects from https to http", from: byAPI, tlsOnly: true, do: ofAPI(redirects("http://" + api + "{path}")), want: selfupdate.ErrInsecure},
	{name: "the storage host redirects from https to http", from: byAPI, tlsOnly: true, do: at("app", redirects("http://"+api+"/app")), want: selfupdate.ErrInsecure},
	{name: "the checksum file redirects from https to http", tlsOnly: true, do: at("app.sha256", redirects("http://"+home+"{path}")), want: selfupdate.ErrInsecure},
	{name: "redirects to file:", do: at("app", redirects("file:///etc/passwd")), want: selfupdate.ErrInsecure},
	{name: "redirects to javascript:", do: at("app", redirects("javascript:alert(1)")), want: selfupdate.ErrInsecure},
	{name: "redirects to a scheme without end", do: at("app", redirects(long(100000)+"://x/")), want: selfupdate.ErrInsecure},
	{name: "the API redirects to file:", from: byAPI, do: ofAPI(redirects("file:///etc/passwd")), want: selfupdate.ErrInsecure},

	{name: "redirects to another host", do: at("app", redirects("{scheme}://elsewhere.example.net{path}?X-Sig="+signed)), want: nil},
	{name: "redirects to another port", do: at("app", redirects("{scheme}://"+home+":8443{path}")), want: nil},
	{name: "redirects to a subdomain", do: at("app", redirects("{scheme}://sub."+home+"{path}")), want: nil},
	{name: "redirects to another host with 307", do: at("app", func(x *exchange) { x.answer(307, nil, x.expand("Location: {scheme}://elsewhere.example.net{path}")) }), want: nil},
	{name: "redirects the checksum file to another host", do: at("app.sha256", redirects("{scheme}://elsewhere.example.net{path}")), want: nil},
	{name: "redirects with a user and password", do: at("app", redirects("{scheme}://admin:"+long(8)+"@elsewhere.example.net{path}")), want: nil},
	{name: "redirects to another host and back", do: func(_ *world, x *exchange) bool {
		switch {
		case x.file() != "app" || x.n > 0:
			return false
		case foreign(x.host):
			redirects("{scheme}://" + home + "{path}")(x)
		default:
			redirects("{scheme}://elsewhere.example.net{path}")(x)
		}
		return true
	}, want: nil},
	{name: "another host answers 401 and asks for a password", do: func(w *world, x *exchange) bool {
		if foreign(x.host) {
			x.answer(401, []byte(marker), "WWW-Authenticate: Basic realm=\"\xff\xfe\"")
			return true
		}
		return at("app", redirects("{scheme}://elsewhere.example.net{path}"))(w, x)
	}, want: selfupdate.ErrResponse},
	{name: "breaks, then redirects the rest to another host", waits: true, do: then("app", half(program), redirects("{scheme}://elsewhere.example.net{path}")), want: nil},
	{name: "the API redirects to another host", from: byAPI, do: ofAPI(redirects("{scheme}://elsewhere.example.net{path}")), want: nil},
	{name: "the API redirects to a subdomain", from: byNewest, do: ofAPI(redirects("{scheme}://sub." + api + "{path}")), want: nil},
	{name: "the API redirects to another port", from: byAPI, do: ofAPI(redirects("{scheme}://" + api + ":8443{path}")), want: nil},
	{name: "the API's storage redirects to another host", from: byAPI, do: at("app", redirects("{scheme}://elsewhere.example.net/app")), want: nil},

	{name: "a Location with control characters", waits: true, do: at("app", redirects("/\x1b[31mMARK\x07")), want: selfupdate.ErrNetwork},
	{name: "a Location that is no address", do: at("app", redirects("{scheme}://[\xffMARK/%zz")), want: selfupdate.ErrResponse},
	{name: "a Location with an escaped marker, then nothing", do: func(w *world, x *exchange) bool {
		if strings.Contains(x.r.URL.Path, "MARK") {
			x.answer(404, nil)
			return true
		}
		return at("app", redirects("/%1b%5b31mMARK%00%0a%ff?"+signed))(w, x)
	}, want: selfupdate.ErrNotFound},
	{name: "a Location that is not UTF-8", do: at("app", redirects("{scheme}://"+home+"/\xff\xfe")), want: selfupdate.ErrNotFound},
	{name: "a Location with a host that is no name", do: at("app", redirects("{scheme}://\xff\xfe.example.net/")), want: selfupdate.ErrNotFound},
	{name: "a Location without an end, to something else", do: func(w *world, x *exchange) bool {
		if strings.HasSuffix(x.r.URL.Path, "/evil") {
			x.content(other)
			return true
		}
		return at("app", redirects("/"+long(100000)+"/evil"))(w, x)
	}, want: selfupdate.ErrDigestMismatch},
	{name: "a Location without an end, stalling there", waits: true, do: func(w *world, x *exchange) bool {
		if strings.HasSuffix(x.r.URL.Path, "/evil") {
			stalls(ok + "Content-Length: 1000000\r\n\r\n")(x)
			return true
		}
		return at("app", redirects("/"+long(100000)+"/evil"))(w, x)
	}, want: selfupdate.ErrNetwork},
	{name: "a redirect without Location", do: at("app", raw("HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n")), want: selfupdate.ErrResponse},
}

var answersOfAll = []row{
	{name: "captive portal on every URL", do: anywhere(answers(200, portal, "Content-Type: text/html")), want: selfupdate.ErrNoChecksum},
	{name: "captive portal, the release signed", trust: byMinisign, do: anywhere(answers(200, portal)), want: selfupdate.ErrSignature},
	{name: "captive portal, signed by ECDSA", trust: byECDSA, do: anywhere(answers(200, portal)), want: selfupdate.ErrSignature},
	{name: "captive portal, the digest pinned", trust: pinned, do: anywhere(answers(200, portal)), want: selfupdate.ErrDigestMismatch},
	{name: "captive portal before GitHub's pages", from: byTag, do: anywhere(answers(200, portal)), want: selfupdate.ErrNoChecksum},
	{name: "captive portal before GitHub's API", from: byAPI, do: anywhere(answers(200, portal)), want: selfupdate.ErrResponse},
	{name: "captive portal before the list of releases", from: byNewest, do: anywhere(answers(200, portal)), want: selfupdate.ErrResponse},
	{name: "captive portal by redirect", do: func(_ *world, x *exchange) bool {
		if foreign(x.host) {
			x.answer(200, []byte(portal))
		} else {
			redirects("{scheme}://portal.example.net/?u=" + signed)(x)
		}
		return true
	}, want: selfupdate.ErrNoChecksum},
	{name: "captive portal that says so (511)", waits: true, do: anywhere(answers(511, portal)), want: selfupdate.ErrNetwork},

	{name: "403 with Retry-After of a day", do: at("app", answers(403, marker, "Retry-After: "+tomorrow)), want: selfupdate.ErrLimited},
	{name: "429 with Retry-After of a day", do: at("app", answers(429, marker, "Retry-After: "+tomorrow)), want: selfupdate.ErrLimited},
	{name: "429 for the checksum file", do: at("app.sha256", answers(429, marker, "Retry-After: "+tomorrow)), want: selfupdate.ErrLimited},
	{name: "503 with Retry-After of a day", do: at("app", answers(503, marker, "Retry-After: "+tomorrow)), want: selfupdate.ErrLimited},
	{name: "429 with Retry-After of an age", do: at("app", answers(429, marker, "Retry-After: 9"+strings.Repeat("9", 30))), want: selfupdate.ErrLimited},
	{name: "429 with Retry-After that is none", waits: true, do: at("app", answers(429, marker, "Retry-After: \xffMARK")), want: selfupdate.ErrLimited},
	{name: "429 with an endless body", do: at("app", endless("HTTP/1.1 429 Slow\r\nRetry-After: 86400\r\n\r\n", mib)), want: selfupdate.ErrLimited},
	{name: "429 once, for a minute", waits: true, do: once("app", answers(429, marker, "Retry-After: 60")), want: nil},
	{name: "the API: 403 with Retry-After of a day", from: byAPI, do: ofAPI(answers(403, marker, "Retry-After: "+tomorrow)), want: selfupdate.ErrLimited},
	{name: "the API: 429 with Retry-After of a day", from: byNewest, do: ofAPI(answers(429, marker, "Retry-After: "+tomorrow)), want: selfupdate.ErrLimited},
	{name: "the API: 403, the limit reached, without a token", from: byList, do: ofAPI(answers(403, `{"message":"API rate limit exceeded for \u001b[31m"}`, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 99999999999999")), want: selfupdate.ErrLimited},
	{name: "403 for the asset", do: at("app", answers(403, marker)), want: selfupdate.ErrResponse},
	{name: "404 for the asset", do: at("app", answers(404, marker)), want: selfupdate.ErrNotFound},
	{name: "404 for all", do: anywhere(answers(404, marker)), want: selfupdate.ErrNotFound},
	{name: "500 for all", waits: true, do: anywhere(answers(500, marker)), want: selfupdate.ErrNetwork},
	{name: "500 with an endless body", waits: true, do: at("app", endless("HTTP/1.1 500 No\r\n\r\n", mib)), want: selfupdate.ErrNetwork},
	{name: "304 without having been asked", do: at("app", raw("HTTP/1.1 304 Not Modified\r\n\r\n")), want: selfupdate.ErrResponse},
	{name: "204", do: at("app", raw("HTTP/1.1 204 No Content\r\n\r\n")), want: selfupdate.ErrResponse},
	{name: "101 to another protocol", do: at("app", raw("HTTP/1.1 101 Switching Protocols\r\nUpgrade: \xffMARK\r\nConnection: upgrade\r\n\r\n"+marker)), want: selfupdate.ErrResponse},
}

// certified is a row about the certificate.
func certified(name string, want error, stranger bool, change func(*x509.Certificate)) row {
	return row{name: name, tlsOnly: true, want: want, certificate: func(t *testing.T, n *network) *tls.Certificate {
		a := n.authority
		if stranger {
			a = n.stranger
		}
		return a.issue(t, anyHost, change)
	}}
}

func retried(r row) row { r.waits = true; return r }

var certificates = []row{
	certified("certificate not yet valid", selfupdate.ErrNetwork, false, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(48 * time.Hour) }),
	certified("certificate expired", selfupdate.ErrNetwork, false, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }),
	certified("certificate for another host", selfupdate.ErrResponse, false, func(c *x509.Certificate) { c.DNSNames = []string{"elsewhere.example.net"} }),
	certified("certificate for a host of a thousand names", selfupdate.ErrResponse, false, func(c *x509.Certificate) {
		c.DNSNames = nil
		for i := range 1000 {
			c.DNSNames = append(c.DNSNames, fmt.Sprintf("%s%d.example.net", long(200), i))
		}
	}),
	certified("certificate without a name", selfupdate.ErrResponse, false, func(c *x509.Certificate) { c.DNSNames = nil }),
	certified("certificate of an unknown authority", selfupdate.ErrResponse, true, func(*x509.Certificate) {}),
	certified("certificate for another use", selfupdate.ErrResponse, false, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageEmailProtection} }),
	{name: "plain HTTP on the TLS port", tlsOnly: true, greet: func(c net.Conn) bool {
		_, _ = c.Read(make([]byte, 4096))
		_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n" + marker))
		return true
	}, want: selfupdate.ErrResponse},
	retried(row{name: "no TLS on the TLS port", tlsOnly: true, greet: func(c net.Conn) bool {
		_, _ = c.Read(make([]byte, 4096))
		_, _ = c.Write([]byte(marker))
		return true
	}, want: selfupdate.ErrNetwork}),
	retried(row{name: "TLS never begins", tlsOnly: true, greet: func(c net.Conn) bool {
		for {
			if _, err := c.Read(make([]byte, 4096)); err != nil {
				return true
			}
		}
	}, want: selfupdate.ErrNetwork}),
	retried(row{name: "the connection is closed at once", greet: func(net.Conn) bool { return true }, want: selfupdate.ErrNetwork}),
}

var ofGitHub = concat(
	names("asset named", byAPI),
	names("asset named, without a token", byList),
	[]row{
		{name: "two assets of one name", from: byAPI, json: beside("app"), want: selfupdate.ErrAsset},
		{name: "a hundred assets of long names that may be meant", from: byAPI, config: func(c *selfupdate.Config) { c.Asset = "" }, json: func(rel map[string]any) {
			var all []map[string]any
			for i := range 99 {
				all = append(all, map[string]any{"id": i + 10, "name": fmt.Sprintf("app-linux-%s-%03d-%s", "amd64", i, long(230)), "state": "uploaded", "size": 10})
			}
			rel["assets"] = all
		}, want: selfupdate.ErrAsset},
		{name: "asset's address is file:", from: byList, json: asset("browser_download_url", "file:///etc/passwd"), want: selfupdate.ErrResponse},
		{name: "asset's address has control characters", from: byList, json: asset("browser_download_url", "https://"+storage+"/"+marker), want: selfupdate.ErrResponse},
		{name: "asset's address has a password", from: byList, json: asset("browser_download_url", "https://a:b@"+storage+"/app"), want: selfupdate.ErrResponse},
		{name: "asset's address is http:", from: byList, tlsOnly: true, json: asset("browser_download_url", "http://"+storage+"/app"), want: selfupdate.ErrInsecure},
		{name: "asset's address is long, and nothing there", from: byList, tlsOnly: true, json: asset("browser_download_url", "https://"+storage+"/"+strings.Repeat("%1b", 1000)), want: selfupdate.ErrNotFound},
		{name: "asset's digest is no digest", from: byAPI, json: asset("digest", "sha256:"+marker), want: nil},
		{name: "asset's digest is another", from: byAPI, json: asset("digest", digest(other).String()), want: selfupdate.ErrDigestMismatch},
		{name: "asset's size is a terabyte", from: byAPI, json: asset("size", 1<<40), want: selfupdate.ErrTooLarge},
		{name: "asset's size is too small", from: byAPI, json: asset("size", 7), want: selfupdate.ErrSize},
		{name: "asset's size is no number", from: byAPI, json: asset("size", marker), want: selfupdate.ErrResponse},
		{name: "asset's state is a terminal's command", from: byAPI, json: asset("state", marker), want: selfupdate.ErrNotFound},
		{name: "another tag than asked for", from: byAPI, json: func(rel map[string]any) { rel["tag_name"] = marker }, want: selfupdate.ErrResponse},
		{name: "newest tag with a path", from: byNewest, json: func(rel map[string]any) { rel["tag_name"] = "v9.0.0/../../x" }, want: selfupdate.ErrNotFound},
		{name: "newest tag with control characters", from: byNewest, json: func(rel map[string]any) { rel["tag_name"] = "v9.0.0" + marker }, want: selfupdate.ErrNotFound},
		{name: "date that is none", from: byNewest, json: func(rel map[string]any) { rel["published_at"] = marker }, want: nil},
		{name: "the API's error quotes a terminal's command", from: byAPI, do: ofAPI(answers(422, `{"message":"\u001b[31mMARK\u0000","errors":[{"message":"\u001b"}]}`)), want: selfupdate.ErrResponse},
		{name: "the API refuses the token", from: byAPI, do: ofAPI(answers(401, `{"message":"\u001b[31m`+"Bearer "+secret+`"}`)), want: selfupdate.ErrResponse},
		{name: "the API's answer is no JSON", from: byAPI, do: ofAPI(answers(200, marker)), want: selfupdate.ErrResponse},
		{name: "the API's answer is another JSON", from: byNewest, do: ofAPI(answers(200, `{"message":"\u001b[31m"}`)), want: selfupdate.ErrResponse},
		{name: "the API's answer is nested without end", from: byAPI, do: ofAPI(endless(chunked, chunk([]byte(strings.Repeat(`{"a":[`, 10000))))), want: selfupdate.ErrResponse},
		{name: "the API's answer is a string without end", from: byAPI, do: ofAPI(endless(chunked+string(chunk([]byte(`{"tag_name":"`))), chunk([]byte(long(1<<16))))), want: selfupdate.ErrTooLarge},
		{name: "the list of releases has no end", from: byNewest, do: ofAPI(endless(chunked+string(chunk([]byte(`[{}`))), chunk([]byte(strings.Repeat(`,{}`, 1000))))), want: selfupdate.ErrTooLarge},
		{name: "the list of releases has pages without end", from: byNewest, do: ofAPI(func(x *exchange) {
			var page int
			if _, err := fmt.Sscanf(x.r.URL.Query().Get("page"), "%d", &page); err != nil {
				page = 1
			}
			x.answer(200, []byte(`[]`), fmt.Sprintf(`Link: <https://elsewhere.example.net/?page=%d>; rel="next"`, page+1))
		}), want: selfupdate.ErrTooLarge},
		{name: "the list of releases breaks", from: byNewest, do: ofAPI(raw(ok + "Content-Length: 1000\r\n\r\n[{\"tag_name\":")), want: selfupdate.ErrNetwork},
		{name: "the link to the next page is no text", from: byNewest, do: ofAPI(answers(200, `[]`, "Link: <\xff\xfeMARK>; rel=\"next\"")), want: selfupdate.ErrResponse},
	})

// names are rows about names of assets: beside the right one, and as the only one.
func names(what string, from int) (all []row) {
	for _, n := range []struct{ what, name string }{
		{"..", ".."},
		{"../app", "../app"},
		{"a/app", "a/app"},
		{`a\app`, `a\app`},
		{"with NUL", "app\x00"},
		{"with ESC", "app\x1b[31m"},
		{"with a line feed", "app\nsha256"},
		{"with a direction mark", "app\u202eexe"},
		{"of 300 bytes", long(300)},
		{"of 100,000 bytes", long(100000)},
		{"empty", ""},
	} {
		all = append(all, row{name: what + " " + n.what + ", beside the right one", from: from, json: beside(n.name)},
			row{name: what + " " + n.what + ", the only one", from: from, config: onlyAsset, json: alone(n.name), want: selfupdate.ErrAsset})
	}
	return all
}

// sums is a checksum file of that text.
func sums(text string) func(*world, *exchange) bool { return at("app.sha256", answers(200, text)) }

var digits = digest(program).Hex()

var checksums = []row{
	{name: "checksum file is HTML", do: sums(portal), want: selfupdate.ErrNoChecksum},
	{name: "checksum file is endless", do: at("app.sha256", endless(chunked, chunk([]byte(digits+"  x\n")))), want: selfupdate.ErrTooLarge},
	{name: "checksum file is endless, on one line", do: at("app.sha256", endless(chunked, chunk(mib))), want: selfupdate.ErrTooLarge},
	{name: "checksum file is a terabyte", do: at("app.sha256", endless(ok+"Content-Length: 1099511627776\r\n\r\n", mib)), want: selfupdate.ErrTooLarge},
	{name: "checksum file is empty", do: sums(""), want: selfupdate.ErrNoChecksum},
	{name: "checksum file with NUL", do: sums(digits + "  app\x00\n"), want: selfupdate.ErrNoChecksum},
	{name: "checksum file with ESC in the name", do: sums(digits + "  app\x1b[31m\n"), want: selfupdate.ErrNoChecksum},
	{name: "checksum file with ESC beside the right name", do: sums(digits + "  \x1b[31mMARK\n" + digits + "  app\n"), want: nil},
	{name: "checksum file with a name of 300 bytes", do: sums(digits + "  " + long(300) + "\n"), want: selfupdate.ErrNoChecksum},
	{name: "checksum file with a line of 100,000 bytes", do: sums(digits + "  " + long(100000) + "\n"), want: selfupdate.ErrNoChecksum},
	{name: "checksum file not in UTF-8", do: sums(digits + "  app\xff\n"), want: selfupdate.ErrNoChecksum},
	{name: "checksum file with two digests for the asset", do: sums(digits + "  app\n" + digest(other).Hex() + "  app\n"), want: selfupdate.ErrNoChecksum},
	{name: "checksum file with a path, only the base name counts", do: sums(digits + "  ../../app\n"), want: nil},
	{name: "checksum file of something else", do: sums(digest(other).Hex() + "  app\n"), want: selfupdate.ErrDigestMismatch},
	{name: "checksum file with bytes of no kind", do: sums(marker), want: selfupdate.ErrNoChecksum},
	{name: "checksum file breaks", waits: true, do: at("app.sha256", raw(ok+"Content-Length: 70\r\n\r\n"+digits)), want: selfupdate.ErrNetwork},
	{name: "checksum file stalls", waits: true, do: at("app.sha256", stalls(ok+"Content-Length: 70\r\n\r\n"+digits)), want: selfupdate.ErrNetwork},
	{name: "checksum file is denied, under all names", do: besides("app", answers(403, marker)), want: selfupdate.ErrResponse},
}

// sig is what is at the signature's name.
func sig(name, text string) func(*world, *exchange) bool { return at(name, answers(200, text)) }

// evil serves w.files["evil"] under that name.
func evil(name string) func(*world, *exchange) bool {
	return func(w *world, x *exchange) bool { return sig(name, string(w.files["evil"]))(w, x) }
}

const (
	minisig = "checksums.txt.minisig"
	ecsig   = "checksums.txt.sig"
)

// comments signs the checksum file with a trusted comment of that text.
func comments(text string) func(*world, minisigner, ecdsaSigner) {
	return func(w *world, m minisigner, _ ecdsaSigner) {
		w.files["evil"] = m.sign(string(w.files["checksums.txt"]), text)
	}
}

var signatures = []row{
	{name: "signature is endless", trust: byMinisign, do: at(minisig, endless(chunked, chunk(mib))), want: selfupdate.ErrTooLarge},
	{name: "signature is endless, by ECDSA", trust: byECDSA, do: at(ecsig, endless(chunked, chunk(mib))), want: selfupdate.ErrTooLarge},
	{name: "signature is HTML", trust: byMinisign, do: sig(minisig, portal), want: signature.ErrMalformed},
	{name: "signature is HTML, by ECDSA", trust: byECDSA, do: sig(ecsig, portal), want: signature.ErrMalformed},
	{name: "signature is of bytes of no kind", trust: byMinisign, do: sig(minisig, strings.Repeat(marker+"\n", 4)), want: signature.ErrMalformed},
	{name: "signature is of bytes of no kind, by ECDSA", trust: byECDSA, do: sig(ecsig, marker), want: signature.ErrMalformed},
	{name: "both signatures are of bytes of no kind", trust: byEither, do: func(w *world, x *exchange) bool { return sig(minisig, marker)(w, x) || sig(ecsig, marker)(w, x) }, want: signature.ErrMalformed},
	{name: "both signatures are missing", trust: byEither, do: func(w *world, x *exchange) bool {
		return at(minisig, answers(404, marker))(w, x) || at(ecsig, answers(404, marker))(w, x)
	}, want: selfupdate.ErrNotFound},
	{name: "signature with ESC in the untrusted comment", trust: byMinisign, do: func(w *world, x *exchange) bool {
		_, rest, _ := strings.Cut(string(w.files[minisig]), "\n")
		return sig(minisig, "untrusted comment: \x1b[31mMARK\n"+rest)(w, x)
	}, want: signature.ErrMalformed},
	{name: "signature with ESC in the trusted comment", trust: byMinisign, resign: comments("version:" + version + " \x1b[31mMARK"), do: evil(minisig), want: signature.ErrMalformed},
	{name: "signature with NUL in the version", trust: byMinisign, resign: comments("version:v2\x00"), do: evil(minisig), want: signature.ErrMalformed},
	{name: "signature for a version of 10,000 bytes", trust: byMinisign, resign: comments("version:" + long(10000)), do: evil(minisig), want: selfupdate.ErrVersionMismatch},
	{name: "signature for an older version", trust: byMinisign, resign: comments("version:v1.0.0"), do: evil(minisig), want: selfupdate.ErrVersionMismatch},
	{name: "signature of something else", trust: byMinisign, resign: func(w *world, m minisigner, _ ecdsaSigner) { w.files["evil"] = m.sign(marker, "version:"+version) }, do: evil(minisig), want: signature.ErrInvalid},
	{name: "signature of something else, by ECDSA", trust: byECDSA, resign: func(w *world, _ minisigner, e ecdsaSigner) { w.files["evil"] = e.sign(marker) }, do: evil(ecsig), want: signature.ErrInvalid},
	{name: "checksum file changed, the signature left", trust: byMinisign, do: at("checksums.txt", answers(200, "# version: "+version+"\n"+digest(other).Hex()+"  app\n")), want: signature.ErrInvalid},
	{name: "checksum file hostile, the signature left", trust: byECDSA, do: at("checksums.txt", answers(200, marker)), want: signature.ErrInvalid},
	{name: "signature is missing", trust: byMinisign, do: at(minisig, answers(404, marker)), want: selfupdate.ErrNotFound},
	{name: "signature is missing and the release complete", from: byAPI, trust: byMinisign, json: func(rel map[string]any) {
		rel["assets"] = rel["assets"].([]map[string]any)[:3]
	}, want: selfupdate.ErrSignature},
	{name: "signature stalls", waits: true, trust: byMinisign, do: at(minisig, stalls(ok+"Content-Length: 300\r\n\r\nuntrusted")), want: selfupdate.ErrNetwork},
	{name: "signature is redirected to another host", trust: byMinisign, do: at(minisig, redirects("{scheme}://elsewhere.example.net{path}")), want: nil},
}
