package checksum

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseDigest(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"SHA-256", hex64, "sha256:" + hex64},
		{"SHA-512", hex128, "sha512:" + hex128},
		{"prefix", "sha256:" + hex64, "sha256:" + hex64},
		{"upper case", "SHA512:" + strings.ToUpper(hex128), "sha512:" + hex128},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, err := ParseDigest(tt.text)
			require.NoError(t, err)
			assert.Equal(t, tt.want, d.String())
			assert.Len(t, d.Hex(), 2*d.Algorithm().Size())
		})
	}
}

func TestParseDigestRefused(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":          "",
		"prefix only":      "sha256:",
		"63 digits":        hex64[1:],
		"65 digits":        hex64 + "0",
		"MD5":              digits(32),
		"not hexadecimal":  "g" + hex64[1:],
		"other prefix":     "md5:" + digits(32),
		"two prefixes":     "sha256:sha256:" + hex64,
		"prefix of length": "sha512:" + hex64,
		"blank":            " " + hex64[1:],
		"line end":         hex64 + "\n",
		"raw bytes":        "\x1b\x00\xff:" + hex64,
	} {
		t.Run(name, func(t *testing.T) {
			d, err := ParseDigest(text)
			require.ErrorIs(t, err, ErrMalformed)
			assert.True(t, d.IsZero())
			assertPlain(t, err)
		})
	}
}

func TestDigestEqual(t *testing.T) {
	a := mustDigest(t, hex64)
	assert.True(t, a.Equal(mustDigest(t, strings.ToUpper(hex64))))
	for i := range hex64 { // each digit counts
		other := []byte(hex64)
		if other[i] = '0'; hex64[i] == '0' {
			other[i] = '1'
		}
		assert.False(t, a.Equal(mustDigest(t, string(other))), i)
	}
	padded := mustDigest(t, hex64+strings.Repeat("0", 64))
	assert.False(t, a.Equal(padded), "same bytes, other algorithm")
}

func TestDigestZeroEqualsNothing(t *testing.T) {
	var zero Digest
	assert.True(t, zero.IsZero())
	assert.False(t, zero.Equal(zero))
	for _, s := range []string{strings.Repeat("0", 64), strings.Repeat("0", 128)} {
		d := mustDigest(t, s)
		assert.False(t, zero.Equal(d))
		assert.False(t, d.Equal(zero))
		assert.False(t, d.IsZero())
	}
	assert.Empty(t, zero.String())
	assert.Empty(t, zero.Hex())
	assert.Equal(t, Algorithm(0), zero.Algorithm())
}

func TestOf(t *testing.T) {
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" // of FIPS 180-4
	assert.Equal(t, empty, Of(SHA256, SHA256.New()).Hex())
	assert.True(t, strings.HasPrefix(Of(SHA512, SHA512.New()).Hex(), "cf83e1357eefb8bd"))
	assert.True(t, Of(SHA256, SHA512.New()).IsZero())
	assert.True(t, Of(SHA512, SHA256.New()).IsZero())
	assert.True(t, Of(0, nil).IsZero())
	assert.True(t, Of(9, SHA256.New()).IsZero())
}

func TestAlgorithmZero(t *testing.T) {
	var zero Algorithm
	assert.Equal(t, "none", zero.String())
	assert.Zero(t, zero.Size())
	assert.Nil(t, zero.New())
}

func TestDigestJSON(t *testing.T) {
	type record struct{ Want, None Digest }
	text, err := json.Marshal(record{Want: mustDigest(t, hex64)})
	require.NoError(t, err)
	assert.JSONEq(t, `{"Want":"sha256:`+hex64+`","None":""}`, string(text))
	var got record
	require.NoError(t, json.Unmarshal(text, &got))
	assert.True(t, got.Want.Equal(mustDigest(t, hex64)))
	assert.True(t, got.None.IsZero())

	require.ErrorIs(t, json.Unmarshal([]byte(`{"Want":"sha256:00"}`), &got), ErrMalformed)
	assert.True(t, got.Want.Equal(mustDigest(t, hex64)), "an error leaves the value")
}
