package selfupdate

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/metal-stack/selfreconcile/checksum"
)

const maxInside = 128 // bytes of an entry's name as recorded

// inside names the file that is taken out of an archive, unless it is the one with the
// target's name: what the digest of an archive stands for is only known together
// with it.
func (u *Updater) inside() string {
	if u.cfg.Unpack == nil {
		return ""
	}
	name := u.cfg.Name
	if s, ok := u.cfg.Unpack.(fmt.Stringer); ok && s.String() != "" {
		name = s.String()
	}
	if name == strings.TrimSuffix(filepath.Base(u.target.target), ".exe") {
		return ""
	}
	if len(name) > maxInside {
		h := checksum.SHA256.New()
		h.Write([]byte(name))
		name = checksum.Of(checksum.SHA256, h).String()
	}
	return name
}

// seen is the record as a decision about an archive may see it: what another file
// of an archive is, or did, says nothing about this one but by its own digest.
func (u *Updater) seen(r record) record {
	in := u.inside()
	other := func(e *entry) *entry {
		if e == nil || e.Inside == in {
			return e
		}
		c := *e
		c.Published, c.URL = checksum.Digest{}, ""
		return &c
	}
	r.Current, r.Spare = other(r.Current), other(r.Spare)
	r.Good = slices.Clone(r.Good)
	for i := range r.Good {
		r.Good[i] = *other(&r.Good[i])
	}
	r.Rejected = slices.Clone(r.Rejected)
	for i := range r.Rejected {
		if r.Rejected[i].Inside != in {
			r.Rejected[i].Published = checksum.Digest{}
		}
	}
	return r
}

// rejects reports whether j is about that program: the same bytes, or what the same
// published file had under the same name.
func (j rejection) rejects(e entry) bool {
	return j.SHA256.Equal(e.SHA256) || j.Inside == e.Inside && (j.is(e.SHA256) || j.is(e.Published))
}
