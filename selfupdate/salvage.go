package selfupdate

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"

	"github.com/metal-stack/selfreconcile/checksum"
)

// salvage finds the programs to go back to when no record tells them: what
// .app.rollback is, and, when there was a record that is damaged, the slots, newest
// first. Without any record the slots are not believed: the first update ever,
// killed before it could write one, leaves a candidate there that never ran.
func (t *target) salvage(current checksum.Digest, damaged bool) ([]entry, error) {
	for _, dir := range []string{t.slots, t.dir} { // an update may have been killed before their names were durable
		if err := t.sys.syncDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, failed("make kept programs durable", dir, err)
		}
	}
	var good []entry
	add := func(path string, want checksum.Digest) {
		fi, err := t.sys.lstat(path)
		if err != nil || !fi.Mode().IsRegular() || len(good) == maxGood {
			return
		}
		got, err := t.hash(path, checksum.SHA256)
		known := got.Equal(current) || slices.ContainsFunc(good, func(e entry) bool { return e.SHA256.Equal(got) })
		if err == nil && !known && (want.IsZero() || got.Equal(want)) {
			good = append(good, entry{SHA256: got, Size: fi.Size(), Confirmed: true, Stat: stampOf(fi)})
		}
	}
	add(t.rollback, t.slotOf(t.rollback))
	if damaged {
		for _, d := range t.slotsByAge() {
			add(t.slot(d), d)
		}
	}
	return good, nil
}

// slotOf returns under which digest a file is a slot, which it must then have; zero
// when it is none.
func (t *target) slotOf(path string) checksum.Digest {
	for _, d := range t.slotsByAge() {
		if t.same(path, t.slot(d)) {
			return d
		}
	}
	return checksum.Digest{}
}

// slotsByAge returns the digests that name slots, the newest file first.
func (t *target) slotsByAge() []checksum.Digest {
	names, err := t.sys.readDir(t.slots)
	if err != nil {
		return nil
	}
	type slot struct {
		digest checksum.Digest
		mtime  int64
	}
	var all []slot
	for _, name := range names {
		d, err := checksum.ParseDigest(name)
		if err != nil || d.Hex() != name {
			continue
		}
		if fi, err := t.sys.lstat(t.slot(d)); err == nil {
			all = append(all, slot{d, fi.ModTime().UnixNano()})
		}
	}
	slices.SortFunc(all, func(a, b slot) int { return cmp.Compare(b.mtime, a.mtime) })
	digests := make([]checksum.Digest, len(all))
	for i := range all {
		digests[i] = all[i].digest
	}
	return digests
}

// keepSalvaged gives a program that is left under the name of the way back alone
// a slot, before the next update takes that name for another one.
func (t *target) keepSalvaged(r record) error {
	for _, e := range r.Good {
		if _, err := t.sys.lstat(t.slot(e.SHA256)); err == nil {
			continue
		}
		if got, err := t.hash(t.rollback, checksum.SHA256); err == nil && got.Equal(e.SHA256) {
			if err := t.linkOver(t.rollback, t.slot(e.SHA256)); err != nil {
				return failed("keep previous program", t.slot(e.SHA256), err)
			}
		}
	}
	return nil
}
