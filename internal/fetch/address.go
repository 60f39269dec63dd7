package fetch

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// EscapeSegment escapes s as one segment of a URL's path. Unlike url.PathEscape
// it also escapes "+", which some stores read as a blank. It does not help
// against "." and "..": see [CheckSegment].
func EscapeSegment(s string) string {
	return strings.ReplaceAll(url.PathEscape(s), "+", "%2B")
}

// CheckSegment returns an error when s can't be one segment of a path or a file
// name: empty, longer than 255 bytes, with "/", "\", "..", control characters,
// or not UTF-8. The error has no class and does not echo s.
func CheckSegment(s string) error {
	switch {
	case s == "":
		return errors.New("it is empty")
	case len(s) > 255:
		return errors.New("it is longer than 255 bytes")
	case !utf8.ValidString(s):
		return errors.New("it is not UTF-8")
	case strings.ContainsAny(s, `/\`):
		return errors.New("it has a slash")
	case s == "." || strings.Contains(s, ".."):
		return errors.New(`it has ".."`)
	case strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		return errors.New("it has control characters")
	}
	return nil
}

// Display returns u for people: without user, password, query and fragment. It is
// whole, so that it tells one URL from another; what a server redirects to goes
// through [shown].
func Display(u *url.URL) string {
	return printable(u.Scheme + "://" + u.Host + u.EscapedPath())
}

// shown is Display for a text or a log line: a Location may be 250 KiB long.
func shown(u *url.URL) string { return clip(Display(u)) }

// Origin returns the scheme, host and port of u in one spelling.
func Origin(u *url.URL) string {
	scheme, port := strings.ToLower(u.Scheme), u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[scheme]
	}
	return scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

func isWeb(u *url.URL) bool { return u.Scheme == "https" || u.Scheme == "http" }

func badScheme(u *url.URL) error {
	return fmt.Errorf("%w: scheme %q", selfupdate.ErrInsecure, clip(printable(u.Scheme)))
}

func checkScheme(u *url.URL, httpOK bool) error {
	switch {
	case u.Scheme == "https" || u.Scheme == "http" && httpOK:
		return nil
	case u.Scheme == "http":
		return fmt.Errorf("%w: %s", selfupdate.ErrInsecure, shown(u))
	}
	return badScheme(u)
}

// printable replaces what a terminal could act upon.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// clip shortens s for an error text.
func clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
