package checksum

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
)

// MaxSize is the largest checksum file that is read, in bytes as published.
const MaxSize = 1 << 20

// decode returns the text without its byte order mark. Whether it is UTF-8 is
// checked by line, so that the error can say which.
func decode(data []byte) (string, error) {
	if len(data) > MaxSize {
		return "", &Error{Err: fmt.Errorf("%w: %d bytes", ErrTooLarge, len(data))}
	}
	switch {
	case hasPrefix(data, "\xff\xfe\x00\x00"), hasPrefix(data, "\x00\x00\xfe\xff"):
		return "", &Error{Err: fmt.Errorf("%w: it is UTF-32", ErrEncoding)}
	case hasPrefix(data, "\xff\xfe"):
		return decodeUTF16(data[2:], binary.LittleEndian)
	case hasPrefix(data, "\xfe\xff"):
		return decodeUTF16(data[2:], binary.BigEndian)
	case unmarkedUTF16(data):
		return "", &Error{Err: fmt.Errorf("%w: it looks like UTF-16 without the mark", ErrEncoding)}
	}
	return string(bytes.TrimPrefix(data, []byte(byteOrderMark))), nil
}

const byteOrderMark = "\uFEFF"

func hasPrefix(data []byte, prefix string) bool { return bytes.HasPrefix(data, []byte(prefix)) }

// unmarkedUTF16 looks at two characters only: more NULs are found by line.
func unmarkedUTF16(data []byte) bool {
	if len(data) < 4 {
		return false
	}
	little := data[0] != 0 && data[1] == 0 && data[2] != 0 && data[3] == 0
	big := data[0] == 0 && data[1] != 0 && data[2] == 0 && data[3] != 0
	return little || big
}

// decodeUTF16 reads what PowerShell's "> file" writes. Unlike utf16.Decode it
// refuses half a character instead of replacing it.
func decodeUTF16(data []byte, order binary.ByteOrder) (string, error) {
	var text strings.Builder
	text.Grow(len(data) / 2)
	for line := 1; len(data) > 0; {
		if len(data) == 1 {
			return "", &Error{Line: line, Err: fmt.Errorf("%w: UTF-16 with an odd number of bytes", ErrEncoding)}
		}
		r := rune(order.Uint16(data))
		data = data[2:]
		if utf16.IsSurrogate(r) {
			second := rune(0)
			if len(data) >= 2 {
				second = rune(order.Uint16(data))
			}
			if r = utf16.DecodeRune(r, second); r == unicode.ReplacementChar {
				return "", &Error{Line: line, Err: fmt.Errorf("%w: UTF-16 with half a surrogate pair", ErrEncoding)}
			}
			data = data[2:]
		}
		if r == '\n' {
			line++
		}
		text.WriteRune(r)
	}
	return text.String(), nil
}
