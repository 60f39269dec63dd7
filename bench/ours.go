package main

import (
	"context"
	"errors"

	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/metal-stack/selfreconcile/selfupdate"
	httpsource "github.com/metal-stack/selfreconcile/source/http"
)

const ours = "selfreconcile"

// oursApply is an Updater's Apply from a URL, as a CLI calls it.
func oursApply(j job) error { return oursUpdate(j, nil) }

// oursTrial is the same as a controller calls it: what it installs is on trial.
// The program of this benchmark does not contain the module, so somebody else would confirm it.
func oursTrial(j job) error { return oursUpdate(j, &selfupdate.Trial{Outside: true}) }

func oursUpdate(j job, trial *selfupdate.Trial) error {
	digest, err := checksum.ParseDigest("sha256:" + j.Digest)
	if err != nil {
		return err
	}
	u, err := selfupdate.New(selfupdate.Config{Target: j.Target, Trust: selfupdate.Pinned(digest), Trial: trial})
	if err != nil {
		return err
	}
	rel, err := httpsource.New(httpsource.Options{AllowHTTP: true}).URL(j.Version, j.URL)
	if err != nil {
		return err
	}
	res, err := u.Apply(context.Background(), rel)
	if err != nil {
		return err
	}
	if res.Outcome != selfupdate.Updated {
		return errors.New(string(res.Outcome))
	}
	return nil
}
