package checksum

import (
	"errors"
	"strconv"
)

// What is wrong with a checksum file. All but [ErrMalformed], which
// [ParseDigest] returns as well, come wrapped in an [*Error].
var (
	// ErrTooLarge: the file has more than [MaxSize] bytes.
	ErrTooLarge = errors.New("checksum file over 1 MiB")
	// ErrLineTooLong: a line has more than 4 KiB, its end not counted.
	ErrLineTooLong = errors.New("line over 4 KiB")
	// ErrEmpty: nothing but blanks and comments.
	ErrEmpty = errors.New("empty checksum file")
	// ErrHTML: a line begins with "<". It is mostly the error page of a web server.
	ErrHTML = errors.New("not a checksum file (HTML or XML)")
	// ErrNUL: a line holds a NUL byte.
	ErrNUL = errors.New("NUL byte in the checksum file")
	// ErrEncoding: neither UTF-8 nor UTF-16 with a byte order mark.
	ErrEncoding = errors.New("neither UTF-8 nor UTF-16 with a byte order mark")
	// ErrCarriageReturn: a CR inside a line. It is no end of a line here, and
	// readers differ on where the name ends.
	ErrCarriageReturn = errors.New("carriage return inside a line")
	// ErrClearSigned: the file holds a PGP or other armoured block. Text outside
	// the signed part must not be trusted, and the signature is not checked here.
	ErrClearSigned = errors.New("clear-signed file: its signature cannot be checked here; publish the list and a detached signature")
	// ErrMalformed: a digest that is not 64 or 128 hexadecimal digits, or whose
	// prefix or tag names another algorithm than its length.
	ErrMalformed = errors.New("malformed digest")
	// ErrEscape: the line is escaped (it begins with a backslash), and its name
	// has a backslash before anything but a backslash, n or r, or there is no name.
	ErrEscape = errors.New("unknown escape in a name")
	// ErrBareDigest: a digest without a name, in a list.
	ErrBareDigest = errors.New("digest without a name: accepted only in a file of its own beside the asset, such as <asset>.sha256")
	// ErrColumns: digest and name cannot be told apart: several digests in a row,
	// the digest last, free text, JSON, the tables of PowerShell or certutil.
	ErrColumns = errors.New("cannot tell digest and name apart")
	// ErrConflict: two different digests of one algorithm for one name, or two
	// different versions.
	ErrConflict = errors.New("conflicting entries")
	// ErrNotListed: the file has no line for the asset.
	ErrNotListed = errors.New("no entry")
	// ErrAmbiguousName: the asset is listed only with directories before it, and
	// with more than one path.
	ErrAmbiguousName = errors.New("more than one path ends in this name")
	// ErrWeakOnly: the asset is listed, but with MD5, SHA-1 or other algorithms
	// that are not accepted.
	ErrWeakOnly = errors.New("listed, but with neither SHA-256 nor SHA-512")
	// ErrAlgorithm: the asset is listed with an accepted algorithm, but not with
	// one that the lookup demanded.
	ErrAlgorithm = errors.New("listed, but not with the algorithm asked for")
)

// Error says where a checksum file is at fault. Err wraps one of the sentinels
// above, for [errors.Is].
type Error struct {
	Line int // from 1; 0 is the whole file
	Err  error
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Err.Error()
	}
	return "line " + strconv.Itoa(e.Line) + ": " + e.Err.Error()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// quote makes a name from a file or a server fit for logs and terminals.
func quote(name string) string {
	const most = 80
	q := strconv.QuoteToASCII(name)
	if len(q) > most {
		q = q[:most-4] + `..."`
	}
	return q
}
