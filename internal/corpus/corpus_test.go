package corpus

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSplit(t *testing.T) {
	one := Header + "string(\"a\")\n"
	two := Header + "[]byte(\"go test fuzz v1\\n\")\nbyte('\\x00')\n"
	assert.Equal(t, []string{one, two, one}, Split([]byte(one+two+one)))
	assert.Empty(t, Split(nil))
}

func TestDecode(t *testing.T) {
	args, err := decode(Header + "string(\"\\xff`\\n\")\n[]byte(\"\\x00\")\nbyte('\\'')\nbyte('\\xfe')\nstring(\"\")\n")
	require.NoError(t, err)
	assert.Equal(t, []any{"\xff`\n", []byte{0}, byte('\''), byte(0xfe), ""}, args)
	for _, text := range []string{"string(\"a\"\n", "f\n", "string(x)\n", "int(1)\n"} {
		_, err := decode(Header + text)
		assert.Error(t, err, text)
	}
}

// TestFile wants the inputs to be found: Add is silent where they are not.
func TestFile(t *testing.T) {
	file, err := File("../fetch", "FuzzSegment")
	require.NoError(t, err)
	assert.FileExists(t, file)
	file, err = File(t.TempDir(), "FuzzSegment")
	require.NoError(t, err)
	assert.Empty(t, file)
}
