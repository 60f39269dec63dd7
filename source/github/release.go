package githubsource

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/metal-stack/selfreconcile/internal/fetch"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

// choice is the best release so far.
type choice struct {
	version string // as x/mod/semver wants it
	release release
}

// consider takes r if it counts and is newer than the best so far, and reports
// whether it did.
func (s *Source) consider(best *choice, r release) bool {
	s.checkDate(r)
	v := semantic(r.Tag)
	switch {
	case checkTag(r.Tag) != nil:
		s.log.Debug("release skipped: this can't be a tag", "id", r.ID)
		return false
	case v == "":
		s.log.Debug("release skipped: its tag is no semantic version", "tag", r.Tag)
		return false
	case r.Draft && !s.opts.Drafts:
		return false
	case (r.PreRelease || semver.Prerelease(v) != "") && !s.opts.PreReleases:
		return false
	}
	c := semver.Compare(v, best.version) // "" is less than any
	if c == 0 {                          // only build metadata differs: v1.32.4+k3s1
		c = r.PublishedAt.Compare(best.release.PublishedAt.Time)
	}
	if c == 0 {
		c = strings.Compare(r.Tag, best.release.Tag)
	}
	if c > 0 {
		*best = choice{v, r}
	}
	return c > 0
}

func (s *Source) checkDate(r release) {
	if r.PublishedAt.bad {
		s.log.Debug("date of a release ignored: it can't be read", "id", r.ID)
	}
}

// semantic returns tag as x/mod/semver wants it, "" when it is no version. A
// number without a dot is more often a date, a build or a moving v1.
func semantic(tag string) string {
	v := "v" + strings.TrimPrefix(strings.TrimPrefix(tag, "v"), "V")
	if !semver.IsValid(v) || !strings.Contains(v, ".") {
		return ""
	}
	return v
}

// Releases were seen in the API minutes before their assets.
const youth = time.Hour

func (s *Source) young(r release) bool {
	return r.PublishedAt.IsZero() || s.now().Sub(r.PublishedAt.Time) < youth
}

func (a asset) notReady() bool { return a.State != "" && a.State != "uploaded" }

// convert makes a Release of the API's answer.
func (s *Source) convert(r release) selfupdate.Release {
	rel := selfupdate.Release{
		Version: r.Tag,
		Assets:  []selfupdate.Asset{},
		Young:   s.young(r),
	}
	at := map[string]int{} // in rel.Assets
	for _, a := range r.Assets {
		if fetch.CheckSegment(a.Name) != nil {
			s.log.Debug("asset skipped: unusable name", "tag", r.Tag, "id", a.ID)
			continue
		}
		if i, ok := at[a.Name]; ok {
			s.log.Debug("two assets of one name", "tag", r.Tag, "name", a.Name)
			rel.Assets[i] = doubled(a.Name)
			continue
		}
		at[a.Name] = len(rel.Assets)
		rel.Assets = append(rel.Assets, s.asset(a))
	}
	return rel
}

// doubled stands for assets of one name, which GitHub does not allow: nobody can
// tell which one is meant. It stays in the list, so that no other one is taken
// for the only match.
func doubled(name string) selfupdate.Asset {
	err := fmt.Errorf("%w: the release lists %q more than once", selfupdate.ErrAsset, name)
	return selfupdate.Asset{Name: name, Size: -1, Open: func(context.Context, selfupdate.Position) (selfupdate.Body, error) {
		return selfupdate.Body{}, err
	}}
}

// asset keeps the API's name and address: GitHub replaces characters of a name
// at the upload, so that neither can be rebuilt.
func (s *Source) asset(a asset) selfupdate.Asset {
	out := selfupdate.Asset{
		Name:     a.Name,
		Size:     a.Size,
		NotReady: a.notReady(),
	}
	if out.Size <= 0 { // an upload that is not complete
		out.Size = -1
	}
	if a.Digest != "" {
		sum, err := checksum.ParseDigest(a.Digest)
		if err != nil {
			s.log.Debug("digest ignored", "name", a.Name, "error", err)
		}
		out.Sum = sum
	}
	req, err := s.request(a, out.Size)
	if err != nil {
		out.Open = func(context.Context, selfupdate.Position) (selfupdate.Body, error) { return selfupdate.Body{}, err }
		return out
	}
	out.URL = display(req.URL)
	if page := display(a.URL); page != "" {
		out.URL = page
	}
	out.Open = s.opener(req)
	return out
}

// request is for an asset's bytes: with a token from the API by its id, which
// private repositories need; the API redirects to a signed URL at a storage host,
// which answers 400 when the token comes along (fetch takes care of that).
func (s *Source) request(a asset, size int64) (fetch.Request, error) {
	if s.opts.Token != "" {
		return fetch.Request{
			URL:        s.api.String() + s.path(fmt.Sprintf("/assets/%d", a.ID)),
			Header:     http.Header{"Accept": {"application/octet-stream"}},
			Credential: http.Header{"Authorization": {"Bearer " + s.opts.Token}},
			Size:       size,
		}, nil
	}
	if display(a.URL) == "" {
		return fetch.Request{}, fmt.Errorf("%w: the API's address of the asset is not one of the web", selfupdate.ErrResponse)
	}
	return fetch.Request{URL: a.URL, Size: size}, nil
}

// display returns a web address for people, "" when text is none.
func display(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Opaque != "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
		return ""
	}
	return fetch.Display(u)
}
