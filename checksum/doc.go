// Package checksum reads the checksum files that releases are published with,
// and compares SHA-256 and SHA-512 digests.
//
// Start with [Parse] for a list such as checksums.txt or SHA256SUMS, with
// [ParseSidecar] for a file published as <asset>.sha256, and then ask
// [File.Lookup] for the asset. [ParseDigest] reads one digest, such as the digest
// field of GitHub's API. Most users need nothing else; [Format] is for
// publishers.
//
// A checksum file from the host of the binary proves integrity, not
// authenticity: verify its signature first.
//
// # Accepted
//
// The encoding is UTF-8, with or without a byte order mark, or UTF-16 of either
// byte order with one. A line ends at LF or CRLF, the last one also at the end of
// the file. Blanks are spaces and tabs; those at the beginning and at the end of
// a line or a name are no part of it. HEX is 64 (SHA-256) or 128 (SHA-512)
// hexadecimal digits of either case.
//
//	HEX  NAME             GNU text mode; any run of blanks, one is enough
//	HEX *NAME             GNU binary mode, BSD -r, openssl -r; likewise
//	sha256:HEX  NAME      a prefix, in these modes; also sha512:
//	SHA256 (NAME) = HEX   BSD and GNU --tag; the blanks are optional, which makes
//	SHA256(NAME)= HEX     OpenSSL's dgst the same shape
//	\HEX  NAME            GNU escapes: \\, \n and \r in NAME stand for a backslash,
//	\SHA256 (NAME) = HEX  a line feed and a carriage return
//	HEX                   only in a sidecar, where it stands for the asset;
//	sha256:HEX            also sha512:
//	# TEXT                a comment
//	# version: v1.2.3     a comment that [File.Version] returns
//
// The tags are SHA256, SHA-256, SHA2-256, SHA512, SHA-512 and SHA2-512 in
// either case. Lines of other algorithms (MD5, SHA-1, SHA-384, BLAKE2, …) are
// skipped: those with any other tag or one of their prefixes, and those in GNU's
// modes whose digest has 8, 16, 32, 40, 48, 56 or 96 digits. A comment that is
// nothing but the name of an algorithm, such as "# BLAKE2b" or
// "# Checksums-SHA3-256:", begins a section; lines in it that have as many
// digits as that algorithm are skipped too. Without such a heading or a tag,
// 64 and 128 digits are taken for SHA-256 and SHA-512.
//
// A name may have blanks inside. One star before it is the mode and no part of
// the name, after any number of blanks; a name that begins with a star is written
// with two. A name with a word that looks like a second digest (32, 40, 56, 64, 96
// or 128 digits) needs the star or a tag. Any other text after the first blanks is
// a name: "HEX  linux x86_64" is an entry for a file of that name, and for no other.
//
// # Refused
//
// Each with its own error, which says the line: [ErrHTML], [ErrEmpty],
// [ErrNUL], [ErrEncoding], [ErrCarriageReturn], [ErrClearSigned],
// [ErrMalformed], [ErrEscape], [ErrBareDigest], [ErrColumns],
// [ErrLineTooLong], [ErrTooLarge]; and by a lookup [ErrNotListed],
// [ErrAmbiguousName], [ErrConflict], [ErrWeakOnly], [ErrAlgorithm]. One bad
// line refuses the whole file: half a list is no list. Contradictions about one
// name do not keep others from being looked up.
//
// No error text holds raw bytes of the file. A name is shown quoted, in ASCII,
// and cut to 80 characters.
package checksum
