// Package signature checks signatures of releases: [Minisign] and [ECDSA] make a
// [selfupdate.Verifier] for [selfupdate.Signed]. Both check a signature over the raw
// bytes of the checksum file, before a byte of it is parsed.
//
//	keys, err := signature.Minisign("RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3")
//	u, err := selfupdate.New(selfupdate.Config{Trust: selfupdate.Signed(keys), …})
//
// Several keys are alternatives: to change a key, ship a version that knows the old
// and the new one, then sign with the new one, then ship a version that knows that alone.
//
// A signature must state the version that it is for, or an old release could be
// served as a new one: with minisign -t 'version:v1.2.3', by a line
// "# version: v1.2.3" in the signed checksum file, or by asset names that have the
// version ({version} in [selfupdate.Config.Asset]).
//
// A key says who signed, not for which program. When one key signs the releases of
// several programs, the names of their assets must differ: the signed checksum file is
// what ties a name to a digest. One that is a digest alone ties it to none, and is
// refused when it is what was signed.
package signature

import (
	"encoding/base64"
	"errors"
	"strings"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// Errors of a signature; each matches [selfupdate.ErrSignature] too. A signature
// that is not there is [selfupdate.ErrNotFound]. The texts have nothing of what the
// signature file holds but the key's id.
var (
	ErrMalformed = refused("malformed signature")
	ErrWrongKey  = refused("signed with another key") // minisign only: ECDSA has no key ids
	ErrInvalid   = refused("invalid signature")
)

// ErrKey is returned for a public key that is none, or that everybody can sign for.
var ErrKey = errors.New("unusable public key")

type refusal struct{ text string }

func refused(text string) error { return &refusal{text} }

func (e *refusal) Error() string           { return e.text }
func (e *refusal) Unwrap() error           { return selfupdate.ErrSignature }
func (e *refusal) Class() selfupdate.Class { return selfupdate.Refused }

// unixLines returns text with LF at the end of each line, as it was before some
// checkout or editor made CRLF of it.
func unixLines(text string) string { return strings.ReplaceAll(text, "\r\n", "\n") }

// canonical decodes base64, of which there is exactly one text for each content:
// the standard decoder ignores line breaks.
func canonical(text string) ([]byte, error) {
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") {
		return nil, errors.New("no base64")
	}
	return raw, nil
}
