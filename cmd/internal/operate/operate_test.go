package operate

import (
	"errors"
	"flag"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWanted(t *testing.T) {
	for _, tt := range []struct{ name, arg, want string }{
		{"a duration without a unit", "-every=10", `invalid value "10" for flag -every: want a duration with its unit, such as 90s or 10m`},
		{"a number in words", "-starts=three", `invalid value "three" for flag -starts: want a whole number`},
		{"a switch", "-force=perhaps", `invalid boolean value "perhaps" for -force: want true or false`},
		{"a number that is too large", "-starts=99999999999999999999", `invalid value "99999999999999999999" for flag -starts: value out of range`},
		{"the flag's own words", "-o=xml", `invalid value "xml" for flag -o: text or json`},
		{"no such flag", "-x=1", "flag provided but not defined: -x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fs := flag.NewFlagSet("", flag.ContinueOnError)
			fs.SetOutput(io.Discard)
			fs.Duration("every", time.Second, "")
			fs.Int("starts", 3, "")
			fs.Bool("force", false, "")
			fs.Func("o", "", func(string) error { return errors.New("text or json") })
			err := fs.Parse([]string{tt.arg})
			require.Error(t, err)
			assert.Equal(t, tt.want, Wanted(fs, err.Error()))
		})
	}
}
