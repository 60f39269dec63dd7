package signature

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"aead.dev/minisign"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// Minisign returns a verifier for signatures by minisign(1), prehashed ones only
// (its default since 0.10), of the checksum file: its name and ".minisig". Each key is
// what minisign -G writes to minisign.pub, or the second line of that.
//
// The signed version is what the trusted comment says as a word "version:v1.2.3".
// The untrusted comment is ignored.
func Minisign(keys ...string) (selfupdate.Verifier, error) {
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: none given", ErrKey)
	}
	v := &minisignVerifier{}
	for _, text := range keys {
		k, err := parseMinisignKey(text)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(v.keys, func(o minisign.PublicKey) bool { return o.ID() == k.ID() && !o.Equal(k) }) {
			return nil, fmt.Errorf("%w: two with the id %016X", ErrKey, k.ID())
		}
		v.keys = append(v.keys, k)
	}
	return v, nil
}

type minisignVerifier struct{ keys []minisign.PublicKey }

// Verify implements [selfupdate.Verifier].
func (v *minisignVerifier) Verify(ctx context.Context, m selfupdate.Message) (selfupdate.Statement, error) {
	if m.Sums == nil {
		return selfupdate.Statement{}, fmt.Errorf("%w: there is no checksum file that it could be of", ErrMalformed)
	}
	text, err := m.Signature(ctx, m.SumsName+".minisig")
	if err != nil {
		return selfupdate.Statement{}, err
	}
	sig, err := parseMinisign(text)
	if err != nil {
		return selfupdate.Statement{}, err
	}
	i := slices.IndexFunc(v.keys, func(k minisign.PublicKey) bool { return k.ID() == sig.KeyID })
	if i < 0 {
		return selfupdate.Statement{}, fmt.Errorf("%w: its id is %016X", ErrWrongKey, sig.KeyID)
	}
	// This covers the trusted comment too.
	if !minisign.Verify(v.keys[i], m.Sums, text) {
		return selfupdate.Statement{}, fmt.Errorf("%w, by the key %016X", ErrInvalid, sig.KeyID)
	}
	version, err := versionIn(sig.TrustedComment)
	return selfupdate.Statement{Key: fmt.Sprintf("minisign %016X", sig.KeyID), Version: version}, err
}

// versionIn returns the version that a trusted comment states, "" for none.
func versionIn(comment string) (string, error) {
	var all []string
	for _, word := range strings.Fields(comment) {
		if v, ok := strings.CutPrefix(word, "version:"); ok {
			all = append(all, v)
		}
	}
	switch {
	case len(all) == 0:
		return "", nil
	case len(all) > 1 || all[0] == "":
		return "", fmt.Errorf("%w: the trusted comment does not state one version", ErrMalformed)
	}
	return all[0], nil
}

const (
	untrusted = "untrusted comment: "
	trusted   = "trusted comment: "
)

// parseMinisign reads a signature file strictly: four lines and nothing more,
// canonical base64, the prehashed algorithm, a trusted comment without control
// characters. The library under it is more lenient.
func parseMinisign(text []byte) (minisign.Signature, error) {
	bad := func(why string) (minisign.Signature, error) {
		return minisign.Signature{}, fmt.Errorf("%w: %s", ErrMalformed, why)
	}
	body, ok := bytes.CutSuffix(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), []byte("\n"))
	if !ok {
		return bad("it does not end with a newline")
	}
	lines := strings.Split(string(body), "\n")
	switch {
	case len(lines) != 4:
		return bad(fmt.Sprintf("%d lines instead of 4", len(lines)))
	case !strings.HasPrefix(lines[0], untrusted):
		return bad("the first line is no untrusted comment")
	case !strings.HasPrefix(lines[2], trusted):
		return bad("the third line is no trusted comment")
	case !printable(lines[2]) || strings.ContainsRune(lines[0], 0):
		return bad("a comment has control characters")
	}
	raw, err := canonical(lines[1], 2+8+ed25519.SignatureSize)
	if err != nil {
		return bad("the second line: " + err.Error())
	}
	if _, err := canonical(lines[3], ed25519.SignatureSize); err != nil {
		return bad("the fourth line: " + err.Error())
	}
	switch string(raw[:2]) {
	case "ED":
	case "Ed":
		return bad("it is not prehashed: sign with minisign 0.10 or newer, without -l")
	default:
		return bad("an unknown algorithm")
	}
	var sig minisign.Signature
	if err := sig.UnmarshalText([]byte(strings.Join(lines, "\n"))); err != nil {
		return bad("it can't be read")
	}
	return sig, nil
}

// canonical decodes base64 of which there is exactly one for each content.
func canonical(text string, size int) ([]byte, error) {
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") {
		return nil, errors.New("no base64")
	}
	if len(raw) != size {
		return nil, fmt.Errorf("%d bytes instead of %d", len(raw), size)
	}
	return raw, nil
}

func parseMinisignKey(text string) (minisign.PublicKey, error) {
	text = strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n"))
	if rest, ok := strings.CutPrefix(text, untrusted); ok {
		_, text, _ = strings.Cut(rest, "\n")
	}
	raw, err := canonical(text, 2+8+ed25519.PublicKeySize)
	if err != nil {
		return minisign.PublicKey{}, fmt.Errorf("%w: minisign: %v", ErrKey, err)
	}
	if string(raw[:2]) != "Ed" {
		return minisign.PublicKey{}, fmt.Errorf("%w: minisign: an unknown algorithm", ErrKey)
	}
	if smallOrder(raw[10:]) {
		return minisign.PublicKey{}, fmt.Errorf("%w: minisign: anybody can sign for it", ErrKey)
	}
	var k minisign.PublicKey
	if err := k.UnmarshalText([]byte(text)); err != nil {
		return minisign.PublicKey{}, fmt.Errorf("%w: minisign: it can't be read", ErrKey)
	}
	return k, nil
}
