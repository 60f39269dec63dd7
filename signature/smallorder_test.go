package signature

import (
	"crypto/ed25519"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// With each key of the list, in both signs, one signature that nobody made verifies
// for some message: the list is of such keys. With any other key it does not.
func TestSmallOrder(t *testing.T) {
	nobody := make([]byte, ed25519.SignatureSize)
	nobody[0] = 1 // R is the neutral element, S is 0
	forged := func(key []byte) bool {
		for i := range 200 { // the order divides 8, so one in eight, or all
			if ed25519.Verify(key, []byte{byte(i)}, nobody) {
				return true
			}
		}
		return false
	}
	require.Len(t, degenerate, 7)
	for _, point := range degenerate {
		require.Len(t, point, ed25519.PublicKeySize)
		for _, sign := range []byte{0, 0x80} {
			key := append([]byte(nil), point...)
			key[31] |= sign
			assert.True(t, smallOrder(key), "%x", key)
			assert.True(t, forged(key), "%x", key)
		}
	}
	for range 20 {
		key, _, err := ed25519.GenerateKey(nil)
		require.NoError(t, err)
		assert.False(t, smallOrder(key), "%x", key)
		assert.False(t, forged(key), "%x", key)
	}
}
