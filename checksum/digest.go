package checksum

import (
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"
)

// Algorithm is a digest algorithm that a release may be verified with. The zero
// value is none.
type Algorithm uint8

// The accepted algorithms. MD5 and SHA-1 are left out on purpose: a file that
// has only those is an error ([ErrWeakOnly]), never a pass.
const (
	SHA256 Algorithm = iota + 1 // FIPS 180-4, 32 bytes
	SHA512                      // FIPS 180-4, 64 bytes
)

// String returns the name as used in "sha256:…"; "none" for the zero value.
func (a Algorithm) String() string {
	switch a {
	case SHA256:
		return "sha256"
	case SHA512:
		return "sha512"
	}
	return "none"
}

// Size returns the length of a digest in bytes; 0 for the zero value.
func (a Algorithm) Size() int {
	switch a {
	case SHA256:
		return sha256.Size
	case SHA512:
		return sha512.Size
	}
	return 0
}

// New returns a running hash, or nil for the zero value.
func (a Algorithm) New() hash.Hash {
	switch a {
	case SHA256:
		return sha256.New()
	case SHA512:
		return sha512.New()
	}
	return nil
}

// Digest is the SHA-256 or SHA-512 of a file. It is a comparable value; the
// zero value is no digest and equals nothing, itself included (see [Digest.Equal]).
type Digest struct {
	alg Algorithm
	sum [sha512.Size]byte
}

// Of returns the digest that h, made by alg.New, has reached. It is the zero
// Digest if alg is none or h has another length.
func Of(alg Algorithm, h hash.Hash) Digest {
	if alg.Size() == 0 || h.Size() != alg.Size() {
		return Digest{}
	}
	d := Digest{alg: alg}
	h.Sum(d.sum[:0])
	return d
}

// ParseDigest reads "sha256:HEX", "sha512:HEX" (the form of GitHub's asset
// digest and of OCI), or HEX alone, whose length tells the algorithm. Upper
// case is accepted, blanks are not. Its error is [ErrMalformed], with a reason
// that does not repeat s.
func ParseDigest(s string) (Digest, error) {
	name, digits, ok := strings.Cut(s, ":")
	if !ok {
		return parseHex(s)
	}
	var want Algorithm
	switch strings.ToLower(name) {
	case "sha256":
		want = SHA256
	case "sha512":
		want = SHA512
	default:
		return Digest{}, fmt.Errorf("%w: the prefix is neither sha256 nor sha512", ErrMalformed)
	}
	d, err := parseHex(digits)
	if err != nil {
		return Digest{}, err
	}
	if d.alg != want {
		return Digest{}, fmt.Errorf("%w: the prefix says %v, the length %v", ErrMalformed, want, d.alg)
	}
	return d, nil
}

func parseHex(s string) (Digest, error) {
	d := Digest{}
	switch len(s) {
	case 2 * sha256.Size:
		d.alg = SHA256
	case 2 * sha512.Size:
		d.alg = SHA512
	default:
		return Digest{}, fmt.Errorf("%w: %d characters, want 64 (SHA-256) or 128 (SHA-512)", ErrMalformed, len(s))
	}
	if _, err := hex.Decode(d.sum[:d.alg.Size()], []byte(s)); err != nil {
		return Digest{}, fmt.Errorf("%w: not hexadecimal", ErrMalformed)
	}
	return d, nil
}

// Algorithm returns the algorithm; 0 for the zero Digest.
func (d Digest) Algorithm() Algorithm { return d.alg }

// IsZero reports whether d is no digest.
func (d Digest) IsZero() bool { return d.alg == 0 }

// Hex returns the lower-case hexadecimal digits; "" for the zero Digest.
func (d Digest) Hex() string { return hex.EncodeToString(d.sum[:d.alg.Size()]) }

// String returns "sha256:HEX" or "sha512:HEX", the form that [ParseDigest]
// reads; "" for the zero Digest.
func (d Digest) String() string {
	if d.IsZero() {
		return ""
	}
	return d.alg.String() + ":" + d.Hex()
}

// Equal compares in constant time. A zero Digest equals nothing, not even
// another zero Digest: "no digest" must never pass for a match.
func (d Digest) Equal(o Digest) bool {
	return d.alg != 0 && d.alg == o.alg && subtle.ConstantTimeCompare(d.sum[:], o.sum[:]) == 1
}

// MarshalText implements [encoding.TextMarshaler] in the form of [Digest.String].
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]; empty text is the zero Digest.
func (d *Digest) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*d = Digest{}
		return nil
	}
	v, err := ParseDigest(string(text))
	if err != nil {
		return err
	}
	*d = v
	return nil
}
