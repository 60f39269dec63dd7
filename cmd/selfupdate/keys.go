package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/metal-stack/selfreconcile/selfupdate"
	"github.com/metal-stack/selfreconcile/signature"
)

const maxKeyFile = 64 << 10 // bytes

// keyFiles are the values of --key, which may be given several times.
type keyFiles []string

func (k *keyFiles) String() string { return strings.Join(*k, " ") }

func (k *keyFiles) Set(file string) error {
	if file == "" {
		return errors.New("no file name")
	}
	*k = append(*k, file)
	return nil
}

// verifiers reads the public keys: PEM is of ECDSA, all else minisign's.
func (k keyFiles) verifiers() ([]selfupdate.Verifier, error) {
	var mini []string
	var pems [][]byte
	for _, file := range k {
		data, err := readSmall(file, maxKeyFile)
		if err != nil {
			return nil, fmt.Errorf("read key: %w", err)
		}
		if bytes.Contains(data, []byte("-----BEGIN ")) {
			_, err = signature.ECDSA(data)
			pems = append(pems, data)
		} else {
			_, err = signature.Minisign(string(data))
			mini = append(mini, string(data))
		}
		if err != nil { // said of the file that it is about
			return nil, usagef("--key %s: %v", file, err)
		}
	}
	var all []selfupdate.Verifier
	if len(mini) > 0 {
		v, err := signature.Minisign(mini...)
		if err != nil {
			return nil, usagef("--key: %v", err)
		}
		all = append(all, v)
	}
	if len(pems) > 0 {
		v, err := signature.ECDSA(pems...)
		if err != nil {
			return nil, usagef("--key: %v", err)
		}
		all = append(all, v)
	}
	return all, nil
}

// signed checks the signature file beside a checksum file, as apply does for a
// release, and returns the digest that it vouches for, in words by which key and as
// which version.
func (v *verifyFlags) signed(ctx context.Context, sums []byte) (checksum.Digest, string, error) {
	all, err := v.keys.verifiers()
	if err != nil {
		return checksum.Digest{}, "", err
	}
	m := selfupdate.Message{
		Asset: v.name, SumsName: filepath.Base(v.sums), Sums: sums,
		Listed: func() (checksum.Digest, error) {
			_, d, err := v.parse(sums)
			return d, err
		},
		Signature: func(_ context.Context, name string) ([]byte, error) {
			data, err := readSmall(filepath.Join(filepath.Dir(v.sums), name), maxKeyFile)
			if errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("%w: %s", selfupdate.ErrNotFound, name)
			}
			return data, err
		},
	}
	var failed []error
	for _, verifier := range all {
		s, err := verifier.Verify(ctx, m)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		return v.stated(s, sums)
	}
	return checksum.Digest{}, "", unsigned(errors.Join(failed...))
}

// unsigned: a file that is not here won't come by waiting, as a release's may.
func unsigned(err error) error {
	if errors.Is(err, selfupdate.ErrNotFound) && !errors.Is(err, selfupdate.ErrSignature) {
		return fmt.Errorf("%w: %w", selfupdate.ErrSignature, err)
	}
	return err
}

// stated returns what a valid signature says.
func (v *verifyFlags) stated(s selfupdate.Statement, sums []byte) (checksum.Digest, string, error) {
	d, states := s.Digest, "" // of the asset: nobody signed the checksum file
	if d.IsZero() {
		list, listed, err := v.parseSigned(sums)
		if err != nil {
			return d, "", err
		}
		d, states = listed, list.Version()
	}
	version := or(s.Version, states)
	switch {
	case states != "" && states != version, v.version != "" && version != "" && version != v.version:
		return d, "", fmt.Errorf("%w: the signature states %+q", selfupdate.ErrVersionMismatch, version)
	case v.version != "" && version == "":
		return d, "", selfupdate.ErrVersionNotBound
	case version == "":
		return d, "signed by " + s.Key + "; it states no version, so an updater refuses it unless the asset's name does\n", nil
	}
	return d, fmt.Sprintf("signed by %s, as version %+q\n", s.Key, version), nil
}
