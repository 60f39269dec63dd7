// Package operate is what the two tools have in common: what an operator may ask
// for who knows a state that is over by now.
package operate

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/metal-stack/selfreconcile/selfupdate"
)

// refusal is an error of the class Refused: trying again does not help.
type refusal struct{ text string }

func (r *refusal) Error() string           { return r.text }
func (r *refusal) Class() selfupdate.Class { return selfupdate.Refused }

// Left returns the program that a rollback leaves and a confirmation is about; nil
// when there is none.
func Left(st selfupdate.Status) *selfupdate.Program {
	if st.Trial != nil {
		return &st.Trial.Candidate
	}
	return st.Current
}

// From returns the digest of the program that --from names, by a version or a
// digest, which has to be the one that the command would be about; zero for "".
func From(st selfupdate.Status, from string) (checksum.Digest, error) {
	if from == "" {
		return checksum.Digest{}, nil
	}
	if p := Left(st); p != nil && is(*p, from) {
		return p.SHA256, nil
	}
	return checksum.Digest{}, gone(st, from)
}

func is(p selfupdate.Program, from string) bool {
	d, err := checksum.ParseDigest(from)
	return p.Version == from || err == nil && (p.SHA256.Equal(d) || p.Published.Equal(d))
}

// gone says that another program is there than --from names, and since when.
func gone(st selfupdate.Status, from string) error {
	name, more := from, ""
	for _, p := range known(st) {
		if is(p, from) {
			name, more = cmp.Or(p.Version, from), " any more"
			break
		}
	}
	p := Left(st)
	if p == nil {
		return &refusal{fmt.Sprintf("%s is not at the target%s, and nothing else is; nothing was done", name, more)}
	}
	since := ""
	if st.Last != nil {
		since = ", since " + st.Last.At.UTC().Format(time.RFC3339)
	}
	return &refusal{fmt.Sprintf("%s is not at the target%s: %s is%s; nothing was done", name, more, Name(*p), since)}
}

// known returns the programs of which a status says that they were at the target.
func known(st selfupdate.Status) []selfupdate.Program {
	list := st.Previous
	for _, j := range st.Rejected {
		list = append(list, selfupdate.Program{SHA256: j.SHA256, Published: j.Published, Version: j.Version})
	}
	for _, p := range []*selfupdate.Program{st.Spare, st.Current} {
		if p != nil {
			list = append(list, *p)
		}
	}
	return list
}

// Pending reports whether a confirmation decides about a version that was left.
func Pending(st selfupdate.Status) bool {
	return slices.ContainsFunc(st.Rejected, func(j selfupdate.Rejection) bool { return j.Verdict == "pending" })
}

// Name is a program for people.
func Name(p selfupdate.Program) string { return cmp.Or(p.Version, p.SHA256.String()) }

var unparsed = regexp.MustCompile(`^invalid (?:boolean )?value ".*" for (?:flag )?-([a-z-]+): parse error$`)

// Wanted is an error of package flag, with what the flag takes in place of "parse error".
func Wanted(fs *flag.FlagSet, text string) string {
	m := unparsed.FindStringSubmatch(text)
	if m == nil || fs.Lookup(m[1]) == nil {
		return text
	}
	value, ok := fs.Lookup(m[1]).Value.(flag.Getter)
	if !ok {
		return text
	}
	want := "a whole number"
	switch value.Get().(type) {
	case time.Duration:
		want = "a duration with its unit, such as 90s or 10m"
	case bool:
		want = "true or false"
	}
	return strings.TrimSuffix(text, "parse error") + "want " + want
}

// Explain says what err is about in the words of status: that the program was
// exchanged between the look at it (From) and now, or that it does not run. Any
// other error is returned as it is.
func Explain(err error, target, from string) error {
	changed, stopped := from != "" && errors.Is(err, selfupdate.ErrChanged), errors.Is(err, selfupdate.ErrNotRunning)
	if !changed && !stopped {
		return err
	}
	st, serr := selfupdate.ReadStatus(target, nil)
	switch {
	case serr != nil:
		return err
	case changed:
		return gone(st, from)
	case st.Trial == nil:
		return err
	}
	return notRunning(*st.Trial)
}

// ExplainConfirm is [Explain] for a confirmation, which may also come before a
// restart that is due: then what runs is not what it would be about.
func ExplainConfirm(err error, target, from string) error {
	if errors.Is(err, selfupdate.ErrBusy) {
		if st, serr := selfupdate.ReadStatus(target, nil); serr == nil && st.PendingRestart {
			return &refusal{"the service was not restarted since the file at the target was changed, so what runs may be another program: restart it first, or --force"}
		}
	}
	return Explain(err, target, from)
}

func notRunning(tr selfupdate.TrialStatus) error {
	name, start := Name(tr.Candidate), fmt.Sprintf("start %d of %d", tr.Started, tr.Max)
	switch n := len(tr.Failures); {
	case tr.Left > 0:
		return &refusal{fmt.Sprintf("%s has not got to Begin in this start (%s): wait, roll back, or --force", name, start)}
	case n > 0:
		start += ": " + tr.Failures[n-1]
	case tr.Started == 0:
		return &refusal{name + " is not running (no start counted): restart its service first, roll back, or --force"}
	}
	return &refusal{fmt.Sprintf("%s is not running (%s): roll back, or --force", name, start)}
}
