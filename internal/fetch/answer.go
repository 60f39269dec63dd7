package fetch

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// StatusError returns the error that the status of an answer stands for, nil for
// 2xx: [selfupdate.ErrNotFound] for 404 and 410, a [*selfupdate.RateLimitError]
// for 429, for a 403 that is a limit and for a 503 that says when to come back,
// [selfupdate.ErrNetwork] for every other 5xx, 408 and 425, which may pass by
// themselves, else [selfupdate.ErrResponse]. It may read the first bytes of the
// body and puts them back.
func StatusError(resp *http.Response) error {
	code := resp.StatusCode
	if code >= 200 && code <= 299 {
		return nil
	}
	host := clip(printable(resp.Request.URL.Host))
	if budgetSpent(resp) || code == http.StatusTooManyRequests {
		return &selfupdate.RateLimitError{Host: host, Reset: resetTime(resp)}
	}
	switch {
	case code == http.StatusNotFound || code == http.StatusGone:
		return fmt.Errorf("%w: status %d", selfupdate.ErrNotFound, code)
	case retriableStatus(code) || serverError(code):
		if d, ok := retryAfter(resp); ok && d > 0 && code == http.StatusServiceUnavailable {
			return &selfupdate.RateLimitError{Host: host, Reset: resetTime(resp)}
		}
		return fmt.Errorf("%w: status %d", selfupdate.ErrNetwork, code)
	}
	return fmt.Errorf("%w: status %d", selfupdate.ErrResponse, code)
}

// budgetSpent reports whether the answer says that the requests of a period are
// used up: trying again is what it forbids. GitHub says so with 403 or 429, and
// its secondary limit only in the text.
// https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api
func budgetSpent(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusForbidden:
		if resp.Header.Get("Retry-After") != "" {
			return true
		}
	case http.StatusTooManyRequests:
	default:
		return false
	}
	if strings.TrimSpace(resp.Header.Get("X-RateLimit-Remaining")) == "0" {
		return true
	}
	text := bytes.ToLower(peek(resp, 4<<10))
	return bytes.Contains(text, []byte("secondary rate limit")) ||
		bytes.Contains(text, []byte("abuse detection mechanism"))
}

// resetTime is when the server wants to see us again; zero when it doesn't say,
// or says something absurd.
func resetTime(resp *http.Response) time.Time {
	now := time.Now()
	const most = 7 * 24 * time.Hour
	if d, ok := retryAfter(resp); ok {
		if d > most {
			return time.Time{}
		}
		return now.Add(d).Truncate(time.Second)
	}
	epoch, err := strconv.ParseInt(strings.TrimSpace(resp.Header.Get("X-RateLimit-Reset")), 10, 64)
	if err != nil || epoch <= 0 || epoch > now.Add(most).Unix() {
		return time.Time{}
	}
	return time.Unix(epoch, 0)
}

// retryAfter parses RFC 9110 section 10.2.3: seconds or a date. A value that is
// neither is none; a date in the past is 0.
func retryAfter(resp *http.Response) (time.Duration, bool) {
	v := strings.TrimSpace(resp.Header.Get("Retry-After"))
	if v == "" {
		return 0, false
	}
	const most = 365 * 24 * time.Hour // far below the overflow of a Duration
	// Out of range is out of sight: never "no time given", on which we would try again.
	if s, err := strconv.ParseUint(v, 10, 63); err == nil || errors.Is(err, strconv.ErrRange) {
		return min(time.Duration(min(s, uint64(most/time.Second)))*time.Second, most), true
	}
	t, err := http.ParseTime(v)
	if err != nil {
		return 0, false
	}
	return min(max(time.Until(t), 0), most), true
}

func checkEncoding(resp *http.Response) error {
	enc := resp.Header.Values("Content-Encoding")
	for _, e := range enc {
		if e = strings.TrimSpace(e); e != "" && !strings.EqualFold(e, "identity") {
			return fmt.Errorf("%w: a Content-Encoding that was not asked for", selfupdate.ErrResponse)
		}
	}
	if resp.Uncompressed {
		return fmt.Errorf("%w: the transport unpacked the body", selfupdate.ErrResponse)
	}
	return nil
}

// part is which bytes an answer holds.
type part struct {
	start int64
	end   int64 // behind the last byte; -1 unknown
	total int64 // -1 unknown
	whole bool  // a clean end of the body is the server's word that it was all
}

// partOf checks status 200 and 206 and the lengths against each other. A 200 is
// the whole body, whatever Content-Range says (RFC 9110 section 14.4: it has no
// meaning there); if that is a lie, the size or the digest tells.
func partOf(resp *http.Response, asked int64) (part, error) {
	length := resp.ContentLength
	if resp.StatusCode == http.StatusOK {
		// Without a length and not chunked, HTTP/1 ends with the connection, and a
		// broken one looks the same.
		whole := length < 0 && (resp.ProtoMajor >= 2 || len(resp.TransferEncoding) > 0)
		return part{0, length, length, whole}, nil
	}
	if resp.StatusCode != http.StatusPartialContent || asked == 0 {
		return part{}, fmt.Errorf("%w: status %d", selfupdate.ErrResponse, resp.StatusCode)
	}
	p, err := parseContentRange(resp.Header.Get("Content-Range"))
	if err != nil {
		return part{}, err
	}
	if p.start != asked {
		return part{}, fmt.Errorf("%w: part starts at %d instead of %d", selfupdate.ErrResponse, p.start, asked)
	}
	if length >= 0 && length != p.end-p.start {
		return part{}, fmt.Errorf("%w: Content-Length %d and Content-Range %d", selfupdate.ErrSize, length, p.end-p.start)
	}
	return p, nil
}

// parseContentRange parses "bytes 5-9/10" and "bytes 5-9/*".
func parseContentRange(s string) (part, error) {
	bad := fmt.Errorf("%w: Content-Range is missing or malformed", selfupdate.ErrResponse)
	span, total, ok := strings.Cut(strings.TrimPrefix(s, "bytes "), "/")
	first, last, ok2 := strings.Cut(span, "-")
	if !ok || !ok2 || !strings.HasPrefix(s, "bytes ") {
		return part{}, bad
	}
	a, err1 := number(first)
	b, err2 := number(last)
	n, err3 := int64(-1), error(nil)
	if total != "*" {
		n, err3 = number(total)
	}
	if err1 != nil || err2 != nil || err3 != nil || b < a || n >= 0 && b >= n {
		return part{}, bad
	}
	return part{start: a, end: b + 1, total: n}, nil
}

// number is strict where strconv takes a sign.
func number(s string) (int64, error) {
	n, err := strconv.ParseUint(s, 10, 62)
	return int64(n), err
}

// unsatisfied returns the whole size that a 416 states ("bytes */10"); -1 when
// it does not.
func unsatisfied(resp *http.Response) int64 {
	total, ok := strings.CutPrefix(resp.Header.Get("Content-Range"), "bytes */")
	if !ok {
		return -1
	}
	n, err := number(total)
	if err != nil {
		return -1
	}
	return n
}
