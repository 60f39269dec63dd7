package fetch

import (
	"net/http"
	"strings"
	"time"
)

// validatorOf returns what a later read can be continued with: a strong ETag, or
// a Last-Modified that is strong by RFC 9110 section 8.8.2.2; "" when there is
// none. A date is strong only well before the answer's Date: a file may change
// twice in a second, and clocks differ.
func validatorOf(h http.Header) string {
	if tag := h.Get("ETag"); tag != "" {
		if isStrongETag(tag) {
			return tag
		}
		return "" // a weak tag says that equal dates may hide a difference
	}
	modified := h.Get("Last-Modified")
	m, err1 := http.ParseTime(modified)
	d, err2 := http.ParseTime(h.Get("Date"))
	if err1 != nil || err2 != nil || d.Sub(m) < time.Minute {
		return ""
	}
	return modified
}

func isStrongETag(s string) bool {
	if len(s) < 2 || len(s) > 256 || s[0] != '"' || s[len(s)-1] != '"' {
		return false
	}
	return !strings.ContainsFunc(s[1:len(s)-1], func(r rune) bool {
		return r <= ' ' || r == '"' || r >= 0x7f // obs-text is allowed, but not worth it
	})
}

// usable reports whether s can be sent as If-Range.
func usable(s string) bool {
	_, err := http.ParseTime(s)
	return err == nil || isStrongETag(s)
}

// differs reports whether an answer is known to be of another state than the
// body. Silence is agreement: the server has answered If-Range. Where that is a
// date, the ETags of any two answers must be equal too.
func (b *body) differs(h http.Header) bool {
	tag, modified := h.Get("ETag"), h.Get("Last-Modified")
	if isStrongETag(b.validator) {
		return tag != "" && tag != b.validator
	}
	if modified != "" && modified != b.validator || tag != "" && b.tag != "" && tag != b.tag {
		return true
	}
	if tag != "" {
		b.tag = tag
	}
	return false
}
