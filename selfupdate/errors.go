package selfupdate

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Class says what to do about an error.
type Class uint8

// The classes. The zero value is no class: the error is not of this module, or
// is a wrong argument.
const (
	Temporary Class = iota + 1 // try later: the network, a rate limit, an upload that is not complete
	Refused                    // verification, format, a limit, a rejection: alert, don't hammer
	Local                      // this machine: space, permission, busy, mount point
)

// String returns "temporary", "refused", "local" or "none".
func (c Class) String() string {
	switch c {
	case Temporary:
		return "temporary"
	case Refused:
		return "refused"
	case Local:
		return "local"
	}
	return "none"
}

// ClassOf returns the class of err or of the first error that it wraps and that
// has one; 0 when there is none. An error has a class by a method Class() Class,
// which is how a source of one's own takes part.
func ClassOf(err error) Class {
	var c interface {
		error
		Class() Class
	}
	if errors.As(err, &c) {
		return c.Class()
	}
	return 0
}

// classed is a sentinel with its class.
type classed struct {
	class Class
	text  string
}

func (e *classed) Error() string { return e.text }
func (e *classed) Class() Class  { return e.class }

func sentinel(c Class, text string) error { return &classed{c, text} }

// Sentinels, one for each decision that a caller takes; test with [errors.Is].
var (
	// Temporary.
	ErrNotFound = sentinel(Temporary, "not there (yet)")                // release, asset or checksum file
	ErrNetwork  = sentinel(Temporary, "transfer did not succeed")       // connection, timeout, stall, status 5xx
	ErrOnTrial  = sentinel(Temporary, "another version is on trial")    // confirm or roll back first
	ErrLimited  = sentinel(Temporary, "the server limits the requests") // see [RateLimitError]

	// Refused.
	ErrDigestMismatch  = sentinel(Refused, "digest mismatch")
	ErrNoChecksum      = sentinel(Refused, "no usable checksum")
	ErrSignature       = sentinel(Refused, "signature does not verify")
	ErrVersionNotBound = sentinel(Refused, "the signature does not state a version")
	ErrVersionMismatch = sentinel(Refused, "version mismatch")
	ErrRejected        = sentinel(Refused, "this digest was rejected here")
	ErrTooLarge        = sentinel(Refused, "larger than allowed")
	ErrSize            = sentinel(Refused, "size differs from the one announced")
	ErrFormat          = sentinel(Refused, "not a program for this machine")
	ErrOtherProgram    = sentinel(Refused, "another program")
	ErrAsset           = sentinel(Refused, "no single matching asset")
	ErrInsecure        = sentinel(Refused, "unencrypted transport not allowed")
	ErrResponse        = sentinel(Refused, "unacceptable answer from the server")
	ErrProbe           = sentinel(Refused, "probe of the staged program failed")
	ErrCannotConfirm   = sentinel(Refused, "the program does not contain this module, so it could never confirm itself")
	ErrHeldBack        = sentinel(Refused, "this download was refused before and is held back for a while")
	ErrExpired         = sentinel(Refused, "the trial of this program is over")
	ErrManaged         = sentinel(Refused, "the caller's policy keeps this target as it is")

	// Local.
	ErrBusy         = sentinel(Local, "another update of this target is running")
	ErrNotRunning   = sentinel(Local, "the program on trial is not running")
	ErrChanged      = sentinel(Local, "the target was changed in the meantime")
	ErrNoTarget     = sentinel(Local, "target does not exist")
	ErrNotRegular   = sentinel(Local, "target is not a regular file")
	ErrPermission   = sentinel(Local, "permission denied")
	ErrReadOnly     = sentinel(Local, "read-only file system")
	ErrNoSpace      = sentinel(Local, "no space left")
	ErrMountPoint   = sentinel(Local, "target is a mount point")
	ErrUnsafeDir    = sentinel(Local, "directory is not safe to update in")
	ErrMetadata     = sentinel(Local, "owner, capabilities or label can't be kept")
	ErrNoPrevious   = sentinel(Local, "nothing to roll back to")
	ErrDamaged      = sentinel(Local, "damaged on disk")
	ErrRecordFormat = sentinel(Local, "the record was written by a newer version of this module")
)

// RateLimitError says that a server refuses requests until a time. It matches
// [ErrLimited].
type RateLimitError struct {
	Host  string
	Reset time.Time // zero when the server did not say
}

// Error implements error.
func (e *RateLimitError) Error() string {
	if e.Reset.IsZero() {
		return fmt.Sprintf("%s limits the requests", e.Host)
	}
	return fmt.Sprintf("%s limits the requests until %s", e.Host, e.Reset.UTC().Format(time.RFC3339))
}

// Class returns Temporary.
func (e *RateLimitError) Class() Class { return Temporary }

// Is reports whether target is [ErrLimited].
func (e *RateLimitError) Is(target error) bool { return target == ErrLimited }

// State says what an [Error] left at the target path.
type State uint8

// The states.
const (
	Unchanged State = iota // the target is what it was; nothing staged remains
	Replaced               // the target is the new program, but a later step failed
	Restored               // the target is the previous program again, but a later step failed
)

// String returns what the state means, as a clause for a person.
func (s State) String() string {
	switch s {
	case Replaced:
		return "the target is the new program"
	case Restored:
		return "the target is the previous program"
	}
	return "the target is unchanged"
}

// Error is a failed step of an update: which one, on which path or URL, and what
// is on disk now.
type Error struct {
	Step  string // e.g. "lock", "check target", "verify", "download", "swap", "record"
	Path  string // of the file or URL that the step was about
	State State
	Err   error
}

// Error implements error.
func (e *Error) Error() string {
	s, cause := e.Step, e.Err.Error()
	if e.Path != "" && !strings.HasPrefix(cause, e.Path+": ") { // a source's error has its URL already
		s += " " + short(e.Path)
	}
	s += ": " + cause
	if e.State != Unchanged {
		s += " (" + e.State.String() + ")"
	}
	return s
}

// short cuts a URL, of which a server may choose the length. A path is whole.
func short(path string) string {
	if len(path) <= maxURL || !strings.Contains(path, "://") {
		return path
	}
	return clip(path, maxURL) + "…"
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// together is several errors on one line. That of errors.Join has a line for each,
// and a server that makes two verifiers fail would write lines into a log.
type together []error

func (t together) Error() string {
	texts := make([]string, len(t))
	for i, err := range t {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (t together) Unwrap() []error { return t }

// join returns those of errs that are not nil; nil for none.
func join(errs ...error) error {
	var t together
	for _, err := range errs {
		if err != nil {
			t = append(t, err)
		}
	}
	switch len(t) {
	case 0:
		return nil
	case 1:
		return t[0]
	}
	return t
}
