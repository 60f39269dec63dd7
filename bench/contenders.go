package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	minio "github.com/minio/selfupdate"
)

// contender is one way to update.
type contender struct {
	name   string
	update func(job) error
	before bool // the old program is installed by ours, untimed
	beside bool // not in the power-cut table: another line stands for it
}

// The first one is what the others are compared with.
var contenders = []contender{
	{name: "reference", update: reference},
	{name: ours, update: oursApply, before: true},
	{name: ours + ", first update", update: oursApply, beside: true},
	{name: ours + ", on trial", update: oursTrial, before: true},
	{name: "minio/selfupdate", update: minioApply},
}

// reference is the least that an update can do and still survive a power cut: one
// pass from the network through SHA-256 into a file beside the target, fsync, keep
// the old one by a link, one rename, fsync of the directory. Nothing is retried,
// limited, recorded or cleaned up.
func reference(j job) error {
	resp, err := http.Get(j.URL)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	dir, name := filepath.Split(j.Target)
	staged := filepath.Join(dir, "."+name+".new")
	f, err := os.OpenFile(staged, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	h := sha256.New()
	buf := make([]byte, 256<<10)
	if _, err := io.CopyBuffer(io.MultiWriter(f, h), resp.Body, buf); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != j.Digest {
		return fmt.Errorf("digest %s, want %s", got, j.Digest)
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Link(j.Target, filepath.Join(dir, "."+name+".old")); err != nil {
		return err
	}
	if err := os.Rename(staged, j.Target); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return first(d.Sync(), d.Close())
}

// minioApply is as that module's documentation has it, with the same digest.
func minioApply(j job) error {
	digest, err := hex.DecodeString(j.Digest)
	if err != nil {
		return err
	}
	resp, err := http.Get(j.URL)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return minio.Apply(resp.Body, minio.Options{
		TargetPath:  j.Target,
		OldSavePath: j.Target + ".old",
		Checksum:    digest,
	})
}
