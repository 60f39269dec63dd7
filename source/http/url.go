package httpsource

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/metal-stack/selfreconcile/internal/fetch"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

// Release is the release of that version whose one asset is at rawURL, with
// default options: https only, unless a pinned digest or a signature verifies
// it. The checksum file is looked for beside it: <url>.sha256 and so on. No
// request is made yet. A URL that can't be used is the error of the first asset
// that is asked for.
func Release(version, rawURL string) selfupdate.Release {
	r, err := New(Options{}).URL(version, rawURL)
	if err != nil {
		return selfupdate.Release{
			Version: version,
			Lookup:  func(string) (selfupdate.Asset, error) { return selfupdate.Asset{}, err },
		}
	}
	return r
}

// URL is [Release] with the Source's options. The asset's name is the last
// segment of the URL's path. Other names are looked for in the same directory,
// without the URL's query; a user and password in the URL stay with its host.
func (s *Source) URL(version, rawURL string) (selfupdate.Release, error) {
	u, name, err := s.parse(rawURL)
	if err != nil {
		return selfupdate.Release{}, err
	}
	return selfupdate.Release{
		Version: version,
		Assets:  []selfupdate.Asset{s.asset(u, name)},
		Lookup:  func(name string) (selfupdate.Asset, error) { return s.sibling(u, name) },
	}, nil
}

// URLWithSums is URL with a checksum file that may be elsewhere. What is named
// after it (<sums>.minisig) is looked for beside it, too.
func (s *Source) URLWithSums(version, rawURL, sumsURL string) (selfupdate.Release, error) {
	r, err := s.URL(version, rawURL)
	if err != nil {
		return selfupdate.Release{}, err
	}
	u, sums, err := s.parse(sumsURL)
	if err != nil {
		return selfupdate.Release{}, err
	}
	if sums == r.Assets[0].Name {
		return selfupdate.Release{}, errors.New("httpsource: the asset and its checksum file have the same name")
	}
	beside := r.Lookup
	r.Sums = sums
	r.Lookup = func(name string) (selfupdate.Asset, error) {
		switch {
		case name == sums:
			return s.asset(u, sums), nil
		case strings.HasPrefix(name, sums+"."):
			return s.sibling(u, name)
		}
		return beside(name)
	}
	return r, nil
}

// parse returns the URL and the file name in it. Its errors do not quote the
// URL, which may hold secrets.
func (s *Source) parse(rawURL string) (*url.URL, string, error) {
	if s.err != nil {
		return nil, "", s.err
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, "", errors.New("httpsource: not a URL that begins with https://")
	}
	if u.Scheme != "https" && u.Scheme != "http" {
		return nil, "", fmt.Errorf("httpsource: %w: not an https URL", selfupdate.ErrInsecure)
	}
	if u.Host == "" {
		return nil, "", errors.New("httpsource: a URL without a host")
	}
	u.Fragment, u.RawFragment = "", ""
	_, last := splitPath(u)
	name, err := url.PathUnescape(last)
	if err == nil {
		err = fetch.CheckSegment(name)
	}
	if err != nil {
		return nil, "", fmt.Errorf("httpsource: %s: the last part of the path is no file name: %w", fetch.Display(u), err)
	}
	return u, name, nil
}

// splitPath splits the escaped path behind its last slash.
func splitPath(u *url.URL) (dir, last string) {
	p := u.EscapedPath()
	i := strings.LastIndexByte(p, '/')
	return p[:i+1], p[i+1:]
}

func (s *Source) asset(u *url.URL, name string) selfupdate.Asset {
	return selfupdate.Asset{
		Name: name,
		URL:  record(u),
		Size: -1,
		Open: func(ctx context.Context, pos selfupdate.Position) (selfupdate.Body, error) {
			return s.fetch.Open(ctx, s.request(u, pos))
		},
	}
}

func (s *Source) sibling(u *url.URL, name string) (selfupdate.Asset, error) {
	if err := fetch.CheckSegment(name); err != nil {
		return selfupdate.Asset{}, noSuch("asset", err)
	}
	dir, _ := splitPath(u)
	path, err := url.PathUnescape(dir)
	if err != nil {
		return selfupdate.Asset{}, noSuch("asset", errors.New("the URL's path is malformed"))
	}
	v := *u
	v.RawQuery, v.ForceQuery = "", false
	v.Path, v.RawPath = path+name, dir+fetch.EscapeSegment(name)
	return s.asset(&v, name), nil
}
