package signature

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

// ECDSA returns a verifier for ECDSA signatures with SHA-256 on P-256, in base64, as
// cosign sign-blob --key makes them, and openssl dgst -sha256 -sign with base64. Each
// key is a PEM block "PUBLIC KEY" (cosign.pub).
//
// The signature is that of the checksum file, its name and ".sig". When there is
// none, that of the asset itself serves, its name and ".sig". That one states no
// version, whatever the checksum file says, which is then not signed.
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
	id string // of the SPKI, as cosign's own logs have it
}

type ecdsaVerifier struct{ keys []ecdsaKey }

// Verify implements [selfupdate.Verifier].
func (v *ecdsaVerifier) Verify(ctx context.Context, m selfupdate.Message) (selfupdate.Statement, error) {
	if m.Sums == nil {
		return selfupdate.Statement{}, fmt.Errorf("%w: there is no checksum file that it could be of", ErrMalformed)
	}
	text, err := m.Signature(ctx, m.SumsName+".sig")
	if errors.Is(err, selfupdate.ErrNotFound) && m.SumsName != m.Asset {
		return v.verifyAsset(ctx, m)
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
	list, err := checksum.ParseNamed(m.Sums, m.SumsName, m.Asset, m.Chosen)
	var d checksum.Digest
	if err == nil {
		d, err = list.Lookup(m.Asset)
	}
	switch {
	case err != nil:
		return selfupdate.Statement{}, fmt.Errorf("%w: %w", selfupdate.ErrNoChecksum, err)
	case d.Algorithm() != checksum.SHA256:
		return selfupdate.Statement{}, fmt.Errorf("%w: the asset's signature is of its SHA-256, which the checksum file does not have", ErrInvalid)
	}
	raw, err := hex.DecodeString(d.Hex())
	if err != nil {
		return selfupdate.Statement{}, err
	}
	key, err := v.verify(text, raw)
	return selfupdate.Statement{Key: key, AssetOnly: true}, err
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
	return "", fmt.Errorf("%w, by %s", ErrInvalid, v.names())
}

func (v *ecdsaVerifier) names() string {
	names := make([]string, len(v.keys))
	for i, k := range v.keys {
		names[i] = k.id
	}
	return strings.Join(names, " or ")
}

// parseECDSA reads one line of canonical base64, of an ASN.1 sequence of that length.
func parseECDSA(text []byte) ([]byte, error) {
	line := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	sig, err := base64.StdEncoding.Strict().DecodeString(line)
	switch {
	case err != nil || strings.ContainsAny(line, "\r\n"):
		return nil, fmt.Errorf("%w: it is not one line of base64", ErrMalformed)
	case len(sig) < 8 || len(sig) > 72 || sig[0] != 0x30 || int(sig[1]) != len(sig)-2:
		return nil, fmt.Errorf("%w: no ASN.1 signature of P-256", ErrMalformed)
	}
	return sig, nil
}

func parseECDSAKey(text []byte) (ecdsaKey, error) {
	bad := func(why string) (ecdsaKey, error) { return ecdsaKey{}, fmt.Errorf("%w: ECDSA: %s", ErrKey, why) }
	block, rest := pem.Decode(text)
	switch {
	case block == nil:
		return bad("no PEM block")
	case block.Type != "PUBLIC KEY":
		return bad(fmt.Sprintf("a PEM block %+q instead of PUBLIC KEY", block.Type))
	case strings.TrimSpace(string(rest)) != "":
		return bad("something follows the PEM block: give several keys one by one")
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return bad("no public key in it")
	}
	k, ok := parsed.(*ecdsa.PublicKey)
	if !ok || k.Curve != elliptic.P256() {
		return bad("the key is not of P-256")
	}
	id := sha256.Sum256(block.Bytes)
	return ecdsaKey{k, "ecdsa-p256 " + hex.EncodeToString(id[:8])}, nil
}
