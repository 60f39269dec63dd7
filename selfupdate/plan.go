package selfupdate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/metal-stack/selfreconcile/checksum"
)

// Action is what [Updater.Apply] would do.
type Action string

// The actions of a [Plan].
const (
	NothingToDo Action = "up to date"
	Update      Action = "update"
	Downgrade   Action = "downgrade" // an update to a lower release tag vX.Y.Z: as good as any
	IsRejected  Action = "rejected"
)

// Plan is what [Updater.Apply] would do now.
type Plan struct {
	Action  Action          `json:"action"`
	Reason  string          `json:"reason,omitempty"`
	Version string          `json:"version"`           // asked for
	Current string          `json:"current,omitempty"` // at the target
	Asset   string          `json:"asset,omitempty"`
	URL     string          `json:"url,omitempty"`
	Want    checksum.Digest `json:"want,omitzero"` // the digest that the asset must have
	Policy  string          `json:"policy,omitempty"`
	Size    int64           `json:"size"` // of the download in bytes; -1 when unknown, 0 when there is none
}

// Plan is a dry run of Apply: it checks directory and space (for which it makes
// and removes an empty file), fetches the checksum file, and asks whether the
// asset's URL answers, without reading it. Nothing is recorded.
func (u *Updater) Plan(ctx context.Context, rel Release) (Plan, error) {
	if err := u.admit(rel); err != nil {
		return Plan{}, err
	}
	asset, err := u.preflight(rel)
	if err != nil {
		return Plan{}, err
	}
	r, err := u.target.view()
	if err != nil {
		return Plan{}, err
	}
	if r.Phase == phaseTrial {
		return u.planOnTrial(rel, asset)
	}
	d, err := u.decide(ctx, rel, asset, r)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Action: d.action, Reason: d.reason, Version: rel.Version, Asset: d.asset.Name, URL: d.asset.URL, Want: d.want, Policy: d.policy}
	if r.Current != nil {
		p.Current = r.Current.Version
	}
	if p.Action != Update || d.have != nil {
		return p, nil
	}
	if err := u.heldBack(r, d); err != nil {
		return Plan{}, err
	}
	if older(rel.Version, p.Current) {
		p.Action = Downgrade
	}
	b, size, err := u.open(ctx, d.asset)
	if err != nil {
		return Plan{}, err
	}
	p.Size = size
	return p, failed("download", d.asset.URL, b.Close())
}

// planOnTrial is for a target with a program on trial: that one, or none.
func (u *Updater) planOnTrial(rel Release, asset Asset) (Plan, error) {
	r, ok := u.unchanged(rel)
	if !ok {
		return Plan{}, failed("check record", u.target.record(), ErrOnTrial)
	}
	return Plan{
		Action: NothingToDo, Reason: "the program at the target is the one asked for, and on trial",
		Version: rel.Version, Current: r.Current.Version, Asset: asset.Name, URL: asset.URL,
	}, nil
}

// decision is what decide found out.
type decision struct {
	action Action
	reason string
	asset  Asset
	want   checksum.Digest // zero when the record alone was enough
	policy string
	inside string          // the file of an archive that is asked for
	here   checksum.Digest // what the target was when this was decided
	have   *entry          // a good program on disk that is the wanted one
}

// preflight finds out without a request what would make the update fail later.
func (u *Updater) preflight(rel Release) (Asset, error) {
	asset, err := u.choose(rel)
	if err == nil && asset.Size > u.cfg.MaxSize {
		err = failed("choose asset", asset.URL, fmt.Errorf("%w: %d bytes, at most %d allowed", ErrTooLarge, asset.Size, u.cfg.MaxSize))
	}
	if err == nil {
		err = u.target.check()
	}
	if err == nil {
		err = u.target.checkSpace(asset.Size)
	}
	return asset, err
}

// decide finds the digest that is wanted and compares that with what is here.
func (u *Updater) decide(ctx context.Context, rel Release, asset Asset, r record) (decision, error) {
	r = u.seen(r)
	d := decision{asset: asset, inside: u.inside(), action: NothingToDo}
	if r.Current != nil {
		d.here = r.Current.SHA256
	}
	if u.recorded(rel, asset, r) {
		d.reason = "version and URL are those that the target was installed from"
		return d, nil
	}
	sums, err := u.expand(u.cfg.Sums, rel.Version)
	if err != nil {
		return decision{}, err
	}
	if d.want, d.policy, err = u.cfg.Trust.wanted(ctx, rel, asset, sums, u.versionInName(rel)); err != nil {
		return decision{}, err
	}
	if asset.Sum.Algorithm() == d.want.Algorithm() && !asset.Sum.Equal(d.want) {
		return decision{}, failed("verify", asset.URL, fmt.Errorf("%w: the source says %v, wanted is %v", ErrDigestMismatch, asset.Sum, d.want))
	}
	there, err := u.there(d.want, r)
	if err != nil {
		return decision{}, err
	}
	if there {
		d.reason = "the target has the wanted digest"
		return d, nil
	}
	if j := r.rejection(d.want); j.bars() {
		d.action, d.reason = IsRejected, j.text()
		return d, nil
	}
	d.action = Update
	known := slices.Clone(r.Good)
	if r.Spare != nil {
		known = append(known, *r.Spare)
	}
	for _, e := range known {
		if e.is(d.want) && u.target.intact(e.SHA256) {
			d.have, d.reason = &e, "the wanted program is still on disk"
		}
	}
	return d, nil
}

func (j rejection) text() string {
	s := j.SHA256.String()
	if j.Verdict == verdictPending {
		s = "it waits until the program that came back has confirmed itself: " + s
	}
	if j.Version != "" {
		s += " (version " + j.Version + ")"
	}
	if j.Reason != "" {
		s += ", " + j.Reason
	}
	return s
}

// there reports whether the target has digest d, the publisher's perhaps.
func (u *Updater) there(d checksum.Digest, r record) (bool, error) {
	switch {
	case r.Current == nil:
		return false, nil
	case r.Current.is(d):
		return u.target.holds(r.Current), nil
	case r.rejection(d) != nil || d.Algorithm() == checksum.SHA256 || r.Current.Published.Algorithm() == d.Algorithm():
		return false, nil
	}
	got, err := u.target.hash(u.target.target, d.Algorithm())
	return got.Equal(d), err
}

// choose returns the asset of the release for this machine.
func (u *Updater) choose(rel Release) (Asset, error) {
	name, err := u.expand(u.cfg.Asset, rel.Version)
	if err != nil {
		return Asset{}, err
	}
	if name == "" && len(rel.Assets) == 1 {
		name = rel.Assets[0].Name
	}
	if name == "" {
		names := make([]string, len(rel.Assets))
		for i, a := range rel.Assets {
			names[i] = a.Name
		}
		if len(names) == 0 && rel.Young && rel.Lookup == nil {
			return Asset{}, failed("choose asset", "", fmt.Errorf("%w: the release has no assets yet", ErrNotFound))
		}
		if len(names) == 0 {
			return Asset{}, failed("choose asset", "", fmt.Errorf("%w: the release lists none, so its name must be given", ErrAsset))
		}
		if name, err = MatchAsset(names, u.cfg.Name, Host()); err != nil {
			return Asset{}, failed("choose asset", "", unlessComing(rel, err))
		}
	}
	a, err := rel.Asset(name)
	if err == nil {
		err = ready(a)
	}
	return a, failed("choose asset", a.URL, err)
}

// unlessComing makes "no asset for this machine" a temporary error while the
// release's assets are still being uploaded.
func unlessComing(rel Release, err error) error {
	var m *matchError
	coming := rel.Young || slices.ContainsFunc(rel.Assets, func(a Asset) bool { return a.NotReady })
	if coming && errors.As(err, &m) && !m.ambiguous {
		return fmt.Errorf("%w: %v", ErrNotFound, err)
	}
	return err
}

// versionInName reports whether the asset's name, which was matched exactly, has
// the version in the place that the caller gave it.
func (u *Updater) versionInName(rel Release) bool {
	return rel.Version != "" && (strings.Contains(u.cfg.Asset, "{version}") || strings.Contains(u.cfg.Asset, "{semver}"))
}

func (u *Updater) expand(template, version string) (string, error) {
	if template == "" {
		return "", nil
	}
	name, err := ExpandAsset(template, u.cfg.Name, version, Host())
	return name, failed("choose asset", "", err)
}
