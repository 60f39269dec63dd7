package selfupdate

import (
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

func TestJoin(t *testing.T) {
	assert.NoError(t, join())
	assert.NoError(t, join(nil, nil))
	assert.Equal(t, io.EOF, join(nil, io.EOF))
	err := join(ErrSignature, nil, &RateLimitError{Host: "h"})
	assert.EqualError(t, err, "signature does not verify; h limits the requests")
	assert.ErrorIs(t, err, ErrSignature)
	assert.ErrorIs(t, err, ErrLimited)
	assert.Equal(t, Refused, ClassOf(err), "the first one decides")
}

func TestErrorOfALongURL(t *testing.T) {
	long := strings.Repeat("é", 5000)
	text := (&Error{Step: "download", Path: "https://h/" + long, Err: ErrNetwork}).Error()
	assert.Less(t, len(text), 600)
	assert.True(t, utf8.ValidString(text))
	assert.True(t, strings.HasSuffix(text, "…: transfer did not succeed"), text)
	text = (&Error{Step: "swap", Path: "/" + long, Err: errors.New("no")}).Error()
	assert.Equal(t, "swap /"+long+": no", text, "a path is whole")
}

func TestQuoteName(t *testing.T) {
	assert.Equal(t, `"app"`, quoteName("app"))
	assert.Equal(t, `"`+strings.Repeat("a", 80)+`"`, quoteName(strings.Repeat("a", 80)))
	for _, s := range []string{strings.Repeat("a", 81), strings.Repeat("\U0001f600", 60), strings.Repeat("\x1b", 255)} {
		q := quoteName(s)
		assert.Less(t, len(q), 90, q)
		assert.True(t, strings.HasSuffix(q, `"…`), q)
	}
}
