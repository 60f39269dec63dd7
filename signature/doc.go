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
// served as a new one: with minisign -t 'version:v1.2.3', or by a line
// "# version: v1.2.3" in the signed checksum file.
package signature

import (
	"errors"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

// Errors of a signature; each matches [selfupdate.ErrSignature] too. A signature
// that is not there is [selfupdate.ErrNotFound].
var (
	ErrMalformed = refused("malformed signature")
	ErrWrongKey  = refused("signed with another key")
	ErrInvalid   = refused("invalid signature")
)

// ErrKey is returned for a public key that is none, or that everybody can sign for.
var ErrKey = errors.New("unusable public key")

type refusal struct{ text string }

func refused(text string) error { return &refusal{text} }

func (e *refusal) Error() string           { return e.text }
func (e *refusal) Unwrap() error           { return selfupdate.ErrSignature }
func (e *refusal) Class() selfupdate.Class { return selfupdate.Refused }

// printable reports whether text is one line that can be shown as it is.
func printable(text string) bool {
	for _, r := range text {
		if r < 0x20 && r != '\t' || r >= 0x7f && r < 0xa0 || r == '\ufffd' {
			return false
		}
	}
	return true
}
