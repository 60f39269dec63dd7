package signature

import (
	"context"
	"crypto/ed25519"
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
// The untrusted comment is ignored. A policy names a key by its id, as minisign does.
//
// The format: https://jedisct1.github.io/minisign/#signature-format.
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

// Keys is for the core, as [selfupdate.Verifier] says.
func (v *minisignVerifier) Keys() []string {
	names := make([]string, len(v.keys))
	for i, k := range v.keys {
		names[i] = minisignName(k.ID())
	}
	return names
}

func minisignName(id uint64) string { return fmt.Sprintf("minisign %016X", id) }

// Verify implements [selfupdate.Verifier].
func (v *minisignVerifier) Verify(ctx context.Context, m selfupdate.Message) (selfupdate.Statement, error) {
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
	// The library reads the text again, and more leniently: it gets what was read here.
	// It checks both signatures, of the file and of the trusted comment.
	if !minisign.Verify(v.keys[i], m.Sums, []byte(sig.String())) {
		return selfupdate.Statement{}, fmt.Errorf("%w by the key %016X", ErrInvalid, sig.KeyID)
	}
	version, err := versionIn(sig.TrustedComment)
	return selfupdate.Statement{Key: minisignName(sig.KeyID), Version: version}, err
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
// canonical base64, the prehashed algorithm, comments without control characters. The
// library under it is more lenient. sig.String is the file again, with LF.
func parseMinisign(text []byte) (sig minisign.Signature, err error) {
	bad := func(why string) (minisign.Signature, error) {
		return minisign.Signature{}, fmt.Errorf("%w: %s", ErrMalformed, why)
	}
	body := strings.TrimSuffix(unixLines(string(text)), "\n")
	lines := strings.Split(body, "\n")
	switch {
	case len(lines) != 4:
		return bad(fmt.Sprintf("%d lines instead of 4", len(lines)))
	case !strings.HasPrefix(lines[0], untrusted):
		return bad("the first line is no untrusted comment")
	case !strings.HasPrefix(lines[2], trusted):
		return bad("the third line is no trusted comment")
	case !printable(lines[0]) || !printable(lines[2]):
		return bad("a comment is not plain text")
	}
	raw, err := canonicalSize(lines[1], 2+8+ed25519.SignatureSize)
	if err != nil {
		return bad("the second line: " + err.Error())
	}
	if _, err := canonicalSize(lines[3], ed25519.SignatureSize); err != nil {
		return bad("the fourth line: " + err.Error())
	}
	switch string(raw[:2]) {
	case "ED":
	case "Ed":
		return bad("it is not prehashed: sign with minisign 0.10 or newer, without -l")
	default:
		return bad("an unknown algorithm")
	}
	if err := sig.UnmarshalText([]byte(body)); err != nil {
		return bad("it can't be read")
	}
	return sig, nil
}

// printable reports whether text is one line that can be shown as it is.
func printable(text string) bool {
	for _, r := range text {
		if r < 0x20 && r != '\t' || r >= 0x7f && r < 0xa0 || r == '\ufffd' {
			return false
		}
	}
	return true
}

func canonicalSize(text string, size int) ([]byte, error) {
	raw, err := canonical(text)
	if err == nil && len(raw) != size {
		err = fmt.Errorf("%d bytes instead of %d", len(raw), size)
	}
	return raw, err
}

func parseMinisignKey(text string) (k minisign.PublicKey, err error) {
	bad := func(why string) (minisign.PublicKey, error) {
		return minisign.PublicKey{}, fmt.Errorf("%w: minisign: %s", ErrKey, why)
	}
	text = strings.TrimSpace(unixLines(text))
	if rest, ok := strings.CutPrefix(text, untrusted); ok {
		_, text, _ = strings.Cut(rest, "\n")
	}
	raw, err := canonicalSize(text, 2+8+ed25519.PublicKeySize)
	switch {
	case err != nil:
		return bad(err.Error())
	case string(raw[:2]) != "Ed":
		return bad("an unknown algorithm")
	case smallOrder(raw[10:]):
		return bad("anybody can sign for it")
	}
	if err := k.UnmarshalText([]byte(text)); err != nil {
		return bad("it can't be read")
	}
	return k, nil
}
