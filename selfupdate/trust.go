package selfupdate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/metal-stack/selfreconcile/checksum"
)

// Trust says why the bytes of a release may run here. The zero value is no
// trust, and [New] refuses it. Make one with [Pinned], [Signed] or [UnsignedChecksum].
type Trust struct {
	pinned    checksum.Digest
	verifiers []Verifier
	reason    string
	set       bool
	unbound   bool
}

// Pinned trusts exactly the file with that digest, which the caller has from a
// place of its own. No checksum file is fetched.
func Pinned(d checksum.Digest) Trust { return Trust{pinned: d, set: true} }

// Signed trusts a release whose checksum file (or digest) one of the verifiers
// accepts. The signature must state the version that was asked for, else an old
// release could be served as a new one.
func Signed(verifiers ...Verifier) Trust { return Trust{verifiers: verifiers, set: true} }

// UnsignedChecksum trusts the checksum file that lies beside the program. That
// is integrity, no authenticity: whoever can replace the one can replace the
// other. The reason, which must not be empty, is recorded with what it let in.
func UnsignedChecksum(reason string) Trust { return Trust{reason: reason, set: true} }

// AllowUnboundVersion returns t such that a signature that states no version is
// accepted, and with it the replay of an old release as a new one.
func (t Trust) AllowUnboundVersion() Trust {
	t.unbound = true
	return t
}

// Verifier checks a detached signature. It decides nothing else: whether the
// version is the one that was asked for is checked here.
type Verifier interface {
	// Verify returns what the signature states, or an error that matches
	// ErrSignature (or ErrNotFound: there is no such signature).
	Verify(ctx context.Context, m Message) (Statement, error)
}

// Message is what a [Verifier] checks.
type Message struct {
	Asset    string // its name
	Version  string // the one asked for
	SumsName string // the name of the checksum file
	Sums     []byte // the checksum file's raw bytes, not parsed yet; nil when there is none
	Chosen   bool   // the checksum file was named by the caller, not found under a usual name

	// Signature fetches the release's asset of that name, such as
	// SumsName + ".minisig", of at most 64 KiB.
	Signature func(ctx context.Context, name string) ([]byte, error)
}

// Statement is what a valid signature says.
type Statement struct {
	Key     string // which key, in its own notation
	Version string // the version that the signature covers; "" when it states none

	// AssetOnly says that the signature is of the asset itself and that nobody signed
	// the checksum file: no version that stands there, or in a name, is bound by it.
	AssetOnly bool
}

const (
	maxSums      = 1 << 20
	maxSignature = 64 << 10
)

func (t Trust) check() error {
	switch {
	case !t.set:
		return errors.New("no Trust: use Pinned, Signed or UnsignedChecksum")
	case !t.pinned.IsZero():
		return nil
	case len(t.verifiers) > 0:
		for _, v := range t.verifiers {
			if v == nil {
				return errors.New("a Verifier is nil")
			}
		}
		return nil
	case strings.TrimSpace(t.reason) != "":
		return nil
	}
	return errors.New("an empty Trust: Pinned needs a digest, Signed a verifier, UnsignedChecksum a reason")
}

// authenticated reports whether the bytes are bound to more than the server that they come from.
func (t Trust) authenticated() bool { return !t.pinned.IsZero() || len(t.verifiers) > 0 }

// satisfied reports whether what a program was let in by is enough for t too.
func (t Trust) satisfied(policy string) bool {
	switch {
	case !t.pinned.IsZero():
		return true // the digest itself is compared
	case len(t.verifiers) > 0:
		return strings.HasPrefix(policy, "signed by ")
	}
	return policy != ""
}

// String says the policy in words, as it is recorded.
func (t Trust) String() string {
	switch {
	case !t.pinned.IsZero():
		return "pinned digest"
	case len(t.verifiers) > 0:
		return "signed"
	case t.reason != "":
		return "unsigned checksum: " + t.reason
	}
	return "none"
}

// wanted returns the digest that the asset must have. inName says that the
// caller's template puts the version into the asset's name, which is thus signed
// together with the digest.
func (t Trust) wanted(ctx context.Context, rel Release, asset Asset, sumsName string, inName bool) (checksum.Digest, string, error) {
	if !t.pinned.IsZero() {
		return t.pinned, t.String(), nil
	}
	sums, data, err := t.fetchSums(ctx, rel, asset, sumsName)
	if err != nil {
		return checksum.Digest{}, "", err
	}
	policy := t.String()
	var stated Statement
	if len(t.verifiers) > 0 { // before a byte of it is parsed
		if stated, err = t.verify(ctx, rel, asset, Message{SumsName: sums.Name, Sums: data, Chosen: rel.Sums != "" || sumsName != ""}); err != nil {
			return checksum.Digest{}, "", failed("verify signature", sums.URL, err)
		}
		policy = "signed by " + stated.Key
	}
	list, err := checksum.ParseNamed(data, sums.Name, asset.Name, rel.Sums != "" || sumsName != "")
	if err != nil {
		return checksum.Digest{}, "", failed("read checksum file", sums.URL, noChecksum(err))
	}
	if len(t.verifiers) > 0 {
		if err := t.bound(stated, list, rel.Version, inName); err != nil {
			return checksum.Digest{}, "", failed("verify signature", sums.URL, err)
		}
	}
	d, err := list.Lookup(asset.Name)
	if err != nil {
		return checksum.Digest{}, "", failed("read checksum file", sums.URL, noChecksum(err))
	}
	return d, policy, nil
}

func noChecksum(err error) error { return fmt.Errorf("%w: %w", ErrNoChecksum, err) }

// fetchSums reads the checksum file: the one that was named, else the first of
// the usual ones that is there.
func (t Trust) fetchSums(ctx context.Context, rel Release, asset Asset, name string) (Asset, []byte, error) {
	names := []string{asset.Name + ".sha256", asset.Name + ".sha512", "checksums.txt", "SHA256SUMS"}
	if name == "" {
		name = rel.Sums
	}
	if name != "" {
		names = []string{name}
	}
	var coming bool  // one of them is listed, but not uploaded yet
	var denied error // the first answer that was neither the file nor "not there"
	for _, n := range names {
		a, err := rel.Asset(n)
		var data []byte
		if err == nil {
			data, err = readAsset(ctx, a, maxSums, t.authenticated())
		}
		switch {
		case isErr(err, ErrNotFound):
			coming = coming || a.NotReady
			continue
		case isErr(err, ErrResponse) && len(names) > 1: // buckets say 403 for what they don't have
			denied = cmp.Or(denied, failed("fetch checksum file", a.URL, err))
			continue
		}
		return a, data, failed("fetch checksum file", a.URL, err)
	}
	if denied != nil {
		return Asset{}, nil, denied
	}
	err := error(fmt.Errorf("%w: the release has none of %s", ErrNoChecksum, strings.Join(names, ", ")))
	if coming || rel.Young || rel.Lookup != nil { // nobody knows what it will have in an hour
		err = fmt.Errorf("%w: none of %s: the release is not complete, or has no checksum file", ErrNotFound, strings.Join(names, ", "))
	}
	return Asset{}, nil, failed("fetch checksum file", asset.URL, err)
}

// verify asks the verifiers in turn; the first that accepts decides.
func (t Trust) verify(ctx context.Context, rel Release, asset Asset, m Message) (Statement, error) {
	m.Asset, m.Version = asset.Name, rel.Version
	m.Signature = func(ctx context.Context, name string) ([]byte, error) {
		a, err := rel.Asset(name)
		if err != nil {
			return nil, err
		}
		return readAsset(ctx, a, maxSignature, true)
	}
	var refused, others []error
	for _, v := range t.verifiers {
		s, err := v.Verify(ctx, m)
		if err == nil {
			return s, nil
		}
		if ClassOf(err) == 0 && ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", ErrSignature, err)
		}
		if ClassOf(err) == Refused {
			refused = append(refused, err)
		} else {
			others = append(others, err)
		}
	}
	return Statement{}, errors.Join(append(refused, others...)...) // one bad signature outweighs a missing one
}

// bound checks that the signature covers the version that was asked for: it says
// so itself, or the signed checksum file does, or the asset's name in it.
func (t Trust) bound(s Statement, list *checksum.File, version string, inName bool) error {
	stated := s.Version
	if s.AssetOnly {
		inName = false
	} else {
		stated = cmp.Or(stated, list.Version())
	}
	switch {
	case stated != "" && version != "" && stated != version:
		return fmt.Errorf("%w: the signature is for another version than %q", ErrVersionMismatch, version)
	case stated == "" && !inName && !t.unbound:
		return ErrVersionNotBound
	}
	return nil
}
