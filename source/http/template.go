package httpsource

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/metal-stack/selfreconcile/internal/fetch"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

// Template says where the versions of a program are.
//
// Placeholders are {version}, {name} (of the asset), {os}, {arch} and {arm}, in
// the path only, each replaced by the value escaped within one path segment:
//
//	https://images.example.com/firewall-controller/{version}/{name}
type Template struct {
	// Bases are URLs with {version} that have {name} too or end in "/". All have
	// the same content: the first is asked first, the next one when that gives any
	// error, except that the URL is not acceptable to begin with (http://). The
	// error is temporary when that of one of them is. A base whose body broke and
	// can't be continued is asked last from then on.
	Bases []string

	// Sums names the checksum file, with {version}, {os}, {arch} and {arm}; ""
	// is the usual order.
	Sums string

	OS   string // "" is runtime.GOOS
	Arch string // "" is runtime.GOARCH
	Arm  string // "" is GOARM of this program's build ("7"); empty on other machines
}

// templates is the Source of a Template.
type templates struct {
	s      *Source
	fetch  *fetch.Client
	bases  []base
	order  ranking
	sums   string
	values map[string]string
}

// base is a URL around a path with placeholders.
type base struct {
	head, path, tail string
	key              string // marks validators as this base's
}

var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

// Template returns the source of t. An unknown placeholder, a base without
// {version} or one that is no URL is an error. The source has no newest version:
// "" is refused, without a request like every version that can't be part of a
// path.
func (s *Source) Template(t Template) (selfupdate.Source, error) {
	if s.err != nil {
		return nil, s.err
	}
	if len(t.Bases) == 0 {
		return nil, errors.New("httpsource: a template without bases")
	}
	ts := &templates{s: s, fetch: s.fetch, sums: t.Sums, values: platform(t)}
	if opts := s.opts.fetch(); len(t.Bases) > 1 && opts.Retries == 0 {
		opts.Retries = 1 // less patient: there is another one
		ts.fetch = fetch.New(opts)
	}
	for i, raw := range t.Bases {
		b, err := parseBase(raw)
		if err != nil {
			return nil, fmt.Errorf("httpsource: base %d: %w", i+1, err)
		}
		ts.bases = append(ts.bases, b)
	}
	if err := checkPlaceholders(t.Sums, "version", "os", "arch", "arm"); err != nil {
		return nil, fmt.Errorf("httpsource: sums: %w", err)
	}
	ts.order.of(len(ts.bases))
	for name, value := range ts.values {
		if err := fetch.CheckSegment(value); err != nil && (name != "arm" || value != "") {
			return nil, fmt.Errorf("httpsource: {%s}: %w", name, err)
		}
	}
	return ts, nil
}

func platform(t Template) map[string]string {
	v := map[string]string{"os": t.OS, "arch": t.Arch, "arm": t.Arm}
	if t.OS == "" {
		v["os"] = runtime.GOOS
	}
	if t.Arch == "" {
		v["arch"] = runtime.GOARCH
	}
	if t.Arm == "" && v["arch"] == "arm" {
		v["arm"] = goarm()
	}
	return v
}

// goarm is not in package runtime; a build says "7" or "7,softfloat".
func goarm() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "GOARM" {
			v, _, _ := strings.Cut(s.Value, ",")
			return v
		}
	}
	return ""
}

// parseBase splits by hand: url.Parse would escape the braces.
func parseBase(raw string) (base, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	i := strings.IndexByte(rest, '/')
	if !ok || i < 0 {
		return base{}, errors.New("not an absolute URL with a path")
	}
	b := base{head: scheme + "://" + rest[:i], path: rest[i:], key: shortHash(raw)}
	if j := strings.IndexAny(b.path, "?#"); j >= 0 {
		b.path, b.tail = b.path[:j], b.path[j:]
	}
	if strings.HasSuffix(b.path, "/") {
		b.path += "{name}"
	}
	if strings.ContainsAny(b.head+b.tail, "{}") {
		return base{}, errors.New("a placeholder outside of the path")
	}
	if err := checkPlaceholders(b.path, "version", "name", "os", "arch", "arm"); err != nil {
		return base{}, err
	}
	if !strings.Contains(b.path, "{version}") {
		return base{}, errors.New("without {version} all versions would be the same file")
	}
	if !strings.Contains(b.path, "{name}") {
		return base{}, errors.New(`it neither has {name} nor ends in "/"`)
	}
	u, err := b.url(map[string]string{"version": "v", "name": "n", "os": "o", "arch": "a", "arm": ""})
	if err != nil {
		return base{}, err
	}
	if u.Scheme != "https" && u.Scheme != "http" {
		return base{}, fmt.Errorf("%w: not an https URL", selfupdate.ErrInsecure)
	}
	return b, nil
}

// url replaces the placeholders.
func (b base) url(values map[string]string) (*url.URL, error) {
	path := placeholder.ReplaceAllStringFunc(b.path, func(p string) string {
		return fetch.EscapeSegment(values[strings.Trim(p, "{}")])
	})
	u, err := url.Parse(b.head + path + b.tail)
	if err != nil || u.Host == "" {
		return nil, errors.New("not a URL") // the cause would quote it
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

func checkPlaceholders(s string, known ...string) error {
	rest := placeholder.ReplaceAllStringFunc(s, func(p string) string {
		for _, k := range known {
			if p == "{"+k+"}" {
				return ""
			}
		}
		return p
	})
	if strings.ContainsAny(rest, "{}") {
		return fmt.Errorf("unknown placeholder in %q; known are {%s}", s, strings.Join(known, "}, {"))
	}
	return nil
}

// Release implements selfupdate.Source.
func (ts *templates) Release(_ context.Context, version string) (selfupdate.Release, error) {
	if version == "" {
		return selfupdate.Release{}, noSuch("version", errors.New("a URL template has no newest one, name it"))
	}
	if err := fetch.CheckSegment(version); err != nil {
		return selfupdate.Release{}, noSuch("version", err)
	}
	values := map[string]string{"version": version}
	for k, v := range ts.values {
		values[k] = v
	}
	return selfupdate.Release{
		Version: version,
		Sums: placeholder.ReplaceAllStringFunc(ts.sums, func(p string) string {
			return values[strings.Trim(p, "{}")]
		}),
		Lookup: func(name string) (selfupdate.Asset, error) { return ts.asset(values, name) },
	}, nil
}
