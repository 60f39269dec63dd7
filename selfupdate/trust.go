package selfupdate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
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
// release could be served as a new one. Where a release has several checksum files,
// [Config.Sums] names the signed one.
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
//
// When it has a method Keys() []string too, that is all that [Statement.Key] can be:
// then a program that another key let in is verified again, although its version and
// URL are those recorded.
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
	Sums     []byte // the checksum file's raw bytes, not parsed yet

	// Listed parses the checksum file, which nobody has authenticated yet, and returns
	// the digest that it has for the asset. For signatures of the asset itself.
	Listed func() (checksum.Digest, error)

	// Signature fetches the release's asset of that name, such as
	// SumsName + ".minisig", of at most 64 KiB.
	Signature func(ctx context.Context, name string) ([]byte, error)
}

// Statement is what a valid signature says.
type Statement struct {
	Key     string // which key, in its own notation
	Version string // the version that the signature covers; "" when it states none

	// Digest is zero when the signature is of Message.Sums, which must then name the
	// asset: a digest alone is one of any program and version. Else it is of the asset
	// with that digest alone: then nobody signed the checksum file, and no version that
	// stands there or in a name is bound by it.
	Digest checksum.Digest
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
		return t.knowsKey(policy) && (t.unbound || !strings.HasSuffix(policy, anyVersion))
	}
	return policy != ""
}

// knowsKey reports whether a policy is by a key that is still trusted: what a key let
// in that was taken out since, because it leaked perhaps, is asked about again.
func (t Trust) knowsKey(policy string) bool {
	by, signed := strings.CutPrefix(policy, signedPrefix)
	return signed && slices.ContainsFunc(t.verifiers, func(v Verifier) bool {
		k, tells := v.(interface{ Keys() []string })
		return !tells || slices.ContainsFunc(k.Keys(), func(key string) bool {
			return strings.HasPrefix(by, clip(key, maxKey)+", ")
		})
	})
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
	names := []string{asset.Name + ".sha256", asset.Name + ".sha512", "checksums.txt", "SHA256SUMS"}
	if sumsName = cmp.Or(sumsName, rel.Sums); sumsName != "" {
		names = []string{sumsName}
	}
	var unsigned error // the first checksum file has no signature: another may have one
	for {
		sums, rest, err := t.fetchSums(ctx, rel, asset, names)
		switch {
		case err != nil && unsigned != nil && (ClassOf(err) == Refused || isErr(err, ErrNotFound)):
			return checksum.Digest{}, "", unsigned
		case err != nil:
			return checksum.Digest{}, "", err
		}
		sums.chosen = sumsName != ""
		if len(t.verifiers) == 0 {
			d, err := sums.listed()
			return d, t.String(), err
		}
		d, policy, none, err := t.signed(ctx, rel, sums, inName)
		if unsigned = cmp.Or(unsigned, err); !none {
			return d, policy, err
		}
		if names = rest; len(names) == 0 {
			return checksum.Digest{}, "", unsigned
		}
	}
}

// signed is wanted for a release whose checksum file, or asset, must be signed. none
// says that there is no signature, neither a good nor a bad one.
func (t Trust) signed(ctx context.Context, rel Release, sums sumsFile, inName bool) (d checksum.Digest, policy string, none bool, err error) {
	m := Message{Asset: sums.of, Version: rel.Version, SumsName: sums.Name, Sums: sums.data, Listed: sums.listed}
	s, none, err := t.verify(ctx, rel, m) // before a byte of it is parsed
	if err != nil {
		return d, "", none, failed("verify signature", sums.URL, err)
	}
	d = s.Digest
	states := []string{s.Version}
	if d.IsZero() {
		sums.signed = true
		list, err := sums.parse()
		if err == nil {
			d, err = sums.listed()
		}
		if err != nil {
			return d, "", false, err
		}
		if states = append(states, list.Version()); inName {
			states = append(states, rel.Version)
		}
	}
	version, err := t.bound(states, rel.Version)
	if err != nil {
		return d, "", false, failed("verify signature", sums.URL, err)
	}
	return d, signedBy(s.Key, version), false, nil
}

// sumsFile is a checksum file, not parsed yet.
type sumsFile struct {
	Asset
	data   []byte
	of     string // the asset that is asked about
	chosen bool   // named by the caller, not found under a usual name
	signed bool
}

// parse takes a digest without a name for the asset's, but not where that is signed:
// it is signed for no name, so the server could offer another program under this one,
// or an older version under this one's.
func (s sumsFile) parse() (list *checksum.File, err error) {
	if s.signed {
		list, err = checksum.Parse(s.data)
	} else {
		list, err = checksum.ParseNamed(s.data, s.Name, s.of, s.chosen)
	}
	if s.signed && isErr(err, checksum.ErrBareDigest) {
		err = errors.New("a digest without a name, which is signed for no asset: sign what sha256sum writes")
	}
	if err != nil {
		return nil, s.unusable(err)
	}
	return list, nil
}

func (s sumsFile) listed() (checksum.Digest, error) {
	list, err := s.parse()
	if err != nil {
		return checksum.Digest{}, err
	}
	d, err := list.Lookup(s.of)
	if err != nil {
		return checksum.Digest{}, s.unusable(err)
	}
	return d, nil
}

func (s sumsFile) unusable(err error) error {
	return failed("read checksum file", s.URL, fmt.Errorf("%w: %w", ErrNoChecksum, err))
}

const (
	signedPrefix = "signed by "
	anyVersion   = ", for any version"
	maxKey       = 96 // bytes of a key's name as recorded
)

// signedBy says in words what a signature vouched for; short enough for the record.
func signedBy(key, version string) string {
	key = clip(key, maxKey)
	if version == "" {
		return signedPrefix + key + anyVersion
	}
	return signedPrefix + key + ", as version " + clip(strings.Trim(strconv.QuoteToASCII(version), `"`), maxVersion)
}

// fetchSums reads the first checksum file that is there, and says which it did not
// come to.
func (t Trust) fetchSums(ctx context.Context, rel Release, asset Asset, names []string) (sums sumsFile, rest []string, err error) {
	var coming bool  // one of them is listed, but not uploaded yet
	var denied error // the first answer that was neither the file nor "not there"
	for i, n := range names {
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
		return sumsFile{Asset: a, data: data, of: asset.Name}, names[i+1:], failed("fetch checksum file", a.URL, err)
	}
	if denied != nil {
		return sums, nil, denied
	}
	err = error(fmt.Errorf("%w: the release has none of %s", ErrNoChecksum, strings.Join(names, ", ")))
	if coming || rel.Young || rel.Lookup != nil { // nobody knows what it will have in an hour
		err = fmt.Errorf("%w: none of %s: the release is not complete, or has no checksum file", ErrNotFound, strings.Join(names, ", "))
	}
	return sums, nil, failed("fetch checksum file", asset.URL, err)
}

// verify asks the verifiers in turn; the first that accepts decides. none says that
// all that is wrong is that there is no signature.
func (t Trust) verify(ctx context.Context, rel Release, m Message) (s Statement, none bool, err error) {
	coming := rel.Young || rel.Lookup != nil
	m.Signature = func(ctx context.Context, name string) ([]byte, error) {
		a, err := rel.Asset(name)
		if err != nil {
			return nil, err
		}
		coming = coming || a.NotReady
		return readAsset(ctx, a, maxSignature, true)
	}
	var refused, others []error
	for _, v := range t.verifiers {
		s, err := v.Verify(ctx, m)
		if err == nil {
			return s, false, nil
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
	err = join(append(refused, others...)...) // one bad signature outweighs a missing one
	unknown := slices.ContainsFunc(others, func(err error) bool { return !isErr(err, ErrNotFound) })
	none = len(refused) == 0 && !unknown
	if none && !coming {
		err = fmt.Errorf("%w: the release is complete and has none: %w", ErrSignature, err)
	}
	return Statement{}, none, err
}

// bound returns the version that a signature covers, by each of the ways in which
// it can: they must not contradict each other, nor what was asked for.
func (t Trust) bound(states []string, asked string) (string, error) {
	version := ""
	for _, v := range states {
		switch {
		case v == "":
		case asked != "" && v != asked:
			return "", fmt.Errorf("%w: the signature is for another version than %+q", ErrVersionMismatch, asked)
		case version != "" && v != version:
			return "", fmt.Errorf("%w: the signature states two versions", ErrVersionMismatch)
		default:
			version = v
		}
	}
	if version == "" && !t.unbound {
		return "", ErrVersionNotBound
	}
	return version, nil
}
