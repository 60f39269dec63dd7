package signature

import (
	"bytes"
	"encoding/hex"
)

// degenerate are the encodings, without the sign bit, of the points of Edwards25519
// whose order divides 8 (RFC 8032, 5.1; two of them not canonical). With such a key
// a signature of nothing verifies for many messages.
var degenerate = decodeAll(
	"0000000000000000000000000000000000000000000000000000000000000000",
	"0100000000000000000000000000000000000000000000000000000000000000",
	"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
	"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
)

func decodeAll(all ...string) [][]byte {
	points := make([][]byte, len(all))
	for i, s := range all {
		points[i], _ = hex.DecodeString(s) // literals, which a test reads too
	}
	return points
}

func smallOrder(key []byte) bool {
	k := bytes.Clone(key)
	k[len(k)-1] &= 0x7f
	for _, p := range degenerate {
		if bytes.Equal(k, p) {
			return true
		}
	}
	return false
}
