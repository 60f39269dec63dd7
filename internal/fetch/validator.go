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

// differs reports whether an answer is known to be of another state than
// validator. Silence is agreement: the server has answered If-Range.
func differs(h http.Header, validator string) bool {
	name := "Last-Modified"
	if isStrongETag(validator) {
		name = "ETag"
	}
	now := h.Get(name)
	return now != "" && now != validator
}
