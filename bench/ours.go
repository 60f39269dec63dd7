package main

import (
	"context"
	"errors"

	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/metal-stack/selfreconcile/internal/fetch"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

const ours = "selfreconcile"

// oursApply is an Updater's Apply from a URL, as a controller calls it.
func oursApply(j job) error {
	digest, err := checksum.ParseDigest("sha256:" + j.Digest)
	if err != nil {
		return err
	}
	u, err := selfupdate.New(selfupdate.Config{Target: j.Target, Trust: selfupdate.Pinned(digest)})
	if err != nil {
		return err
	}
	c := fetch.New(fetch.Options{AllowHTTP: true})
	rel := selfupdate.Release{Version: j.Version, Assets: []selfupdate.Asset{{Name: "program", URL: j.URL, Size: -1,
		Open: func(ctx context.Context, pos selfupdate.Position) (selfupdate.Body, error) {
			return c.Open(ctx, fetch.Request{URL: j.URL, Offset: pos.Offset, Validator: pos.Validator})
		}}}}
	res, err := u.Apply(context.Background(), rel)
	if err != nil {
		return err
	}
	if res.Outcome != selfupdate.Updated {
		return errors.New(string(res.Outcome))
	}
	return nil
}
