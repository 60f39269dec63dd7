package signature

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

// ECDSA returns a verifier for ECDSA signatures with SHA-256 on P-256, in base64. Each
// key is a PEM block "PUBLIC KEY": cosign.pub, or what openssl pkey -pubout writes. A
// signature is made by one of
//
//	cosign sign-blob --key cosign.key --tlog-upload=false --output-signature FILE.sig FILE
//	openssl dgst -sha256 -sign KEY FILE | openssl base64 -out FILE.sig
//
// where cosign 3 also needs --new-bundle-format=false --use-signing-config=false. Its
// bundles (.sigstore.json), certificates, keyless signatures and entries in a
// transparency log are not supported: they are for checks that need the network, or
// a key of somebody else.
//
// The signature is that of the checksum file, its name and ".sig". When there is
// none, that of the asset itself serves, its name and ".sig". It states no version,
// whatever the checksum file says, which is then not signed, nor which program it is
// for: it needs [selfupdate.Trust.AllowUnboundVersion].
//
// A signature does not say which key made it, so that of another key is [ErrInvalid]. A
// policy names a key by the first 8 bytes of the SHA-256 of its DER.
func ECDSA(keys ...[]byte) (selfupdate.Verifier, error) {
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: none given", ErrKey)
	}
	v := &ecdsaVerifier{}
	for _, text := range keys {
		k, err := parseECDSAKey(text)
		if err != nil {
			return nil, err
		}
		v.keys = append(v.keys, k)
	}
	return v, nil
}

type ecdsaKey struct {
	*ecdsa.PublicKey
	id string
}

type ecdsaVerifier struct{ keys []ecdsaKey }

// Keys is for the core, as [selfupdate.Verifier] says.
func (v *ecdsaVerifier) Keys() []string {
	names := make([]string, len(v.keys))
	for i, k := range v.keys {
		names[i] = k.id
	}
	return names
}

// Verify implements [selfupdate.Verifier].
func (v *ecdsaVerifier) Verify(ctx context.Context, m selfupdate.Message) (selfupdate.Statement, error) {
	text, err := m.Signature(ctx, m.SumsName+".sig")
	if errors.Is(err, selfupdate.ErrNotFound) && m.SumsName != m.Asset {
		s, aerr := v.verifyAsset(ctx, m)
		if errors.Is(aerr, selfupdate.ErrNotFound) {
			aerr = err // the one that should be there
		}
		return s, aerr
	}
	if err != nil {
		return selfupdate.Statement{}, err
	}
	sum := sha256.Sum256(m.Sums)
	key, err := v.verify(text, sum[:])
	return selfupdate.Statement{Key: key}, err
}

// verifyAsset is for a signature of the asset: of the digest that the checksum
// file, which nobody signed, says that the asset has.
func (v *ecdsaVerifier) verifyAsset(ctx context.Context, m selfupdate.Message) (selfupdate.Statement, error) {
	text, err := m.Signature(ctx, m.Asset+".sig")
	if err != nil {
		return selfupdate.Statement{}, err
	}
	d, err := m.Listed()
	if err != nil {
		return selfupdate.Statement{}, err
	}
	if d.Algorithm() != checksum.SHA256 {
		return selfupdate.Statement{}, fmt.Errorf("%w: the signature of the asset is of its SHA-256, and the checksum file has a %v", selfupdate.ErrNoChecksum, d.Algorithm())
	}
	sum, err := hex.DecodeString(d.Hex())
	if err != nil {
		return selfupdate.Statement{}, err
	}
	key, err := v.verify(text, sum)
	return selfupdate.Statement{Key: key, Digest: d}, err
}

func (v *ecdsaVerifier) verify(text, sum []byte) (key string, err error) {
	sig, err := parseECDSA(text)
	if err != nil {
		return "", err
	}
	for _, k := range v.keys {
		if ecdsa.VerifyASN1(k.PublicKey, sum, sig) {
			return k.id, nil
		}
	}
	return "", fmt.Errorf("%w: not by %s, or of something else", ErrInvalid, strings.Join(v.Keys(), ", nor "))
}

// maxECDSA is more than a signature has in any layout.
const maxECDSA = 256

// parseECDSA reads base64, in one line (cosign) or wrapped (openssl base64), of the
// one DER of two numbers in the range (SEC 1, C.5; RFC 3279, 2.2.3).
func parseECDSA(text []byte) ([]byte, error) {
	bad := func(why string) ([]byte, error) { return nil, fmt.Errorf("%w: %s", ErrMalformed, why) }
	switch {
	case len(text) > maxECDSA && bytes.HasPrefix(text, []byte("{")):
		return bad("a bundle of cosign 3: sign with --new-bundle-format=false --use-signing-config=false --output-signature")
	case len(text) > maxECDSA:
		return bad("too long for a signature of P-256")
	}
	der, err := canonical(strings.ReplaceAll(unixLines(string(text)), "\n", ""))
	if err != nil {
		return bad("it is no base64")
	}
	var sig struct{ R, S *big.Int }
	rest, err := asn1.Unmarshal(der, &sig)
	if err != nil || len(rest) > 0 {
		return bad("not the DER of two numbers")
	}
	order := elliptic.P256().Params().N
	if sig.R.Sign() <= 0 || sig.S.Sign() <= 0 || sig.R.Cmp(order) >= 0 || sig.S.Cmp(order) >= 0 {
		return bad("not of the curve P-256")
	}
	if again, err := asn1.Marshal(sig); err != nil || !bytes.Equal(again, der) {
		return bad("not in DER")
	}
	return der, nil
}

// parseECDSAKey reads one PEM block and nothing else, in the one form that it has.
func parseECDSAKey(text []byte) (ecdsaKey, error) {
	bad := func(why string) (ecdsaKey, error) { return ecdsaKey{}, fmt.Errorf("%w: ECDSA: %s", ErrKey, why) }
	lines := strings.TrimSpace(unixLines(string(text)))
	block, rest := pem.Decode([]byte(lines))
	switch {
	case block == nil:
		return bad("no PEM block")
	case block.Type != "PUBLIC KEY":
		return bad(fmt.Sprintf("a PEM block %+.40q instead of PUBLIC KEY", block.Type))
	case len(rest) > 0:
		return bad("something follows the PEM block: give several keys one by one")
	case len(block.Headers) > 0, strings.TrimSpace(string(pem.EncodeToMemory(block))) != lines: // Decode skips what it does not like
		return bad("more than one plain PEM block of 64 columns")
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return bad("no public key in it")
	}
	k, ok := parsed.(*ecdsa.PublicKey)
	if !ok || k.Curve != elliptic.P256() {
		return bad("the key is not of P-256")
	}
	if again, err := x509.MarshalPKIXPublicKey(k); err != nil || !bytes.Equal(again, block.Bytes) {
		return bad("not in DER")
	}
	id := sha256.Sum256(block.Bytes)
	return ecdsaKey{k, "ecdsa-p256 " + hex.EncodeToString(id[:8])}, nil
}
