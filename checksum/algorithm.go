package checksum

import "strings"

// algorithmNamed tells what a tag, a prefix or a heading names. digits is the
// length of another algorithm's digest where that is also the length of an
// accepted one: then only the name tells them apart.
func algorithmNamed(name string) (alg Algorithm, digits int, known bool) {
	switch canonical(name) {
	case "SHA256", "SHA2256":
		return SHA256, 0, true
	case "SHA512", "SHA2512":
		return SHA512, 0, true
	case "SHA3256", "KECCAK256", "SHA512/256", "SHA512256", "BLAKE2S", "BLAKE2S256", "BLAKE2SP",
		"BLAKE2B256", "BLAKE3", "B3", "SM3", "GOST12256", "STREEBOG256":
		return 0, 64, true
	case "SHA3512", "KECCAK512", "BLAKE2", "BLAKE2B", "BLAKE2B512", "BLAKE2BP", "B2", "WHIRLPOOL",
		"GOST12512", "STREEBOG512":
		return 0, 128, true
	case "MD4", "MD5", "SHA", "SHA1", "SHA224", "SHA2224", "SHA384", "SHA2384", "SHA512/224", "SHA512224",
		"SHA3224", "SHA3384", "CRC32", "CRC32B", "CRC32C", "RMD160", "RIPEMD160", "TIGER",
		"XXH32", "XXH64", "XXH128", "XXH3":
		return 0, 0, true
	}
	return 0, 0, false
}

// canonical maps the spellings of an algorithm to one: sha-256, SHA_256.
func canonical(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '-' || r == '_' || r == ' ':
			return -1
		case 'a' <= r && r <= 'z':
			return r - 'a' + 'A'
		}
		return r
	}, name)
}

// heading reads a comment such as "BLAKE2b", "Checksums-Sha1:" or "== SHA512SUMS =="
// as the beginning of a section. Prose that mentions an algorithm is no heading.
func heading(comment string) (digits int, ok bool) {
	s := strings.ToLower(strings.Trim(comment, blanks+":=-*"))
	for _, word := range []string{"checksums", "checksum", "sums", "sum", "hashes", "hash"} {
		s = strings.TrimSuffix(strings.TrimPrefix(s, word), word)
	}
	_, digits, ok = algorithmNamed(s)
	return digits, ok
}

// otherLength reports whether a digest of n digits is surely not an accepted one
// but one of CRC-32, XXH64, MD5, SHA-1, Tiger, SHA-224 or SHA-384.
func otherLength(n int) bool {
	switch n {
	case 8, 16, 32, 40, 48, 56, 96:
		return true
	}
	return false
}

// digestWord reports whether a word, if it stands in a name, is more likely a
// second digest than a part of the name.
func digestWord(word string) bool {
	switch len(word) {
	case 32, 40, 56, 64, 96, 128:
		return isHex(word)
	}
	return false
}

// spoiltDigest reports whether a word was meant for a digest, so that the error
// says what is wrong with it and not that there is none: nearly all of it is
// hexadecimal, or it has about the right length, or it is in the base64 of
// https://www.w3.org/TR/SRI.
func spoiltDigest(word string) bool {
	n, hexes, plain := len(word), 0, 0
	for _, c := range []byte(word) {
		if isHexDigit(c) {
			hexes++
		}
		if isAlnum(c) {
			plain++
		}
	}
	switch {
	case n >= 24 && 8*hexes >= 7*n && !strings.Contains(word, "="): // not sha256=HEX
		return true
	case plain == n && (n >= 63 && n <= 65 || n >= 127 && n <= 129):
		return true
	}
	name, _, ok := strings.Cut(word, "-")
	alg, _, _ := algorithmNamed(name)
	return ok && alg != 0 && n > 40
}

func isHex(s string) bool {
	for i := range len(s) {
		if !isHexDigit(s[i]) {
			return false
		}
	}
	return s != ""
}

func isHexDigit(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func isAlnum(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
