package signature

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/metal-stack/selfreconcile/internal/corpus"
)

// Made by minisign 0.11 and OpenSSL 3.0.
const (
	seedMinisign = "untrusted comment: signature from minisign secret key\n" +
		"RUTIfpvscUOcKY+Mr2jN1rR/40cVoWGw69c/81NiLnhIp38E+8sPjCBL3EYHZUMTN34H4pU4JFCn1xoofogxB+zBWlsMrLSvQwU=\n" +
		"trusted comment: version:v2\n" +
		"9DtNKSJFBlHD77KgADUkU+/gJJnhIuulKScywB60vKF1t77ysx2rGFw1yByUfjdIY/xuMOCcAc1os7Aakr+UBw==\n"
	seedMinisignKey = "untrusted comment: minisign public key 299C4371EC9B7EC8\n" +
		"RWTIfpvscUOcKQm/mlXB6Is58S1IjqkQ6AcmgfRhyndAcZFma64HHkjz\n"
	seedECDSA = "MEUCICwW5GtVqBN6EZObBXvYCfBdJdfPXmO/isTZrkB+HgubAiEAsNHM2GbvDna8\n" +
		"2FLYZr0fi/BEsDlhsfbHJRyPBNUVtSo=\n"
	seedECDSAKey = "-----BEGIN PUBLIC KEY-----\n" +
		"MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAENvHNWLn3qZNmoFfb3SMUhXVA1msa\n" +
		"0g2hv3O+izPD+oFkfD2+vWoUyeSAT/uerDMolLSrrA7XOlgVEby7Cw4S+Q==\n" +
		"-----END PUBLIC KEY-----\n"
)

// Each target: what is accepted, written again, is what was read, but for line
// ends; so there are no two readings of one file.

func seeds(f *testing.F, text string) {
	f.Add(text)
	f.Add(strings.ReplaceAll(text, "\n", "\r\n"))
	f.Add(strings.TrimSuffix(text, "\n"))
	f.Add(text + text)
}

func FuzzParseMinisign(f *testing.F) {
	corpus.Add(f)
	seeds(f, seedMinisign)
	f.Add(strings.Replace(seedMinisign, "version:v2", "version:v2 version:v3\t", 1))
	f.Fuzz(func(t *testing.T, text string) {
		sig, err := parseMinisign([]byte(text))
		if err != nil {
			plain(t, err)
			return
		}
		if again := sig.String(); again != strings.TrimSuffix(unixLines(text), "\n")+"\n" {
			t.Errorf("%q became %q", text, again)
		}
		if _, err := versionIn(sig.TrustedComment); err != nil {
			plain(t, err)
		}
	})
}

func FuzzParseMinisignKey(f *testing.F) {
	corpus.Add(f)
	seeds(f, seedMinisignKey)
	f.Add(strings.Split(seedMinisignKey, "\n")[1])
	f.Fuzz(func(t *testing.T, text string) {
		k, err := parseMinisignKey(text)
		if err != nil {
			plain(t, err)
			return
		}
		lines := strings.Split(strings.TrimSpace(unixLines(text)), "\n")
		if again := k.String(); again != lines[len(lines)-1] || len(lines) > 2 {
			t.Errorf("%q became %q", text, again)
		}
	})
}

func FuzzParseECDSA(f *testing.F) {
	corpus.Add(f)
	seeds(f, seedECDSA)
	f.Add(strings.ReplaceAll(seedECDSA, "\n", ""))
	f.Fuzz(func(t *testing.T, text string) {
		der, err := parseECDSA([]byte(text))
		if err != nil {
			plain(t, err)
			return
		}
		if again := base64.StdEncoding.EncodeToString(der); again != strings.ReplaceAll(unixLines(text), "\n", "") {
			t.Errorf("%q became %q", text, again)
		}
	})
}

func FuzzParseECDSAKey(f *testing.F) {
	corpus.Add(f)
	seeds(f, seedECDSAKey)
	f.Fuzz(func(t *testing.T, text string) {
		k, err := parseECDSAKey([]byte(text))
		if err != nil {
			plain(t, err)
			return
		}
		der, err := x509.MarshalPKIXPublicKey(k.PublicKey)
		if err != nil {
			t.Fatal(err)
		}
		again := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
		if strings.TrimSpace(again) != strings.TrimSpace(unixLines(text)) {
			t.Errorf("%q became %q", text, again)
		}
	})
}
