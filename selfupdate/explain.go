package selfupdate

import (
	"context"
	"errors"
	"fmt"
)

func isErr(err, target error) bool { return err != nil && errors.Is(err, target) }

// localError is a failure of this machine's file system, with the clause of
// advice that an operator needs.
type localError struct {
	sentinel error // nil: no decision hangs on it
	advice   string
	cause    error
}

func (e *localError) Error() string {
	if e.sentinel == nil {
		return e.cause.Error()
	}
	return fmt.Sprintf("%v (%s): %v", e.sentinel, e.advice, e.cause)
}

func (e *localError) Class() Class { return Local }

func (e *localError) Unwrap() []error {
	if e.sentinel == nil {
		return []error{e.cause}
	}
	return []error{e.sentinel, e.cause}
}

// explain gives a system's error the sentinel and the advice that belong to it.
// An error that has a class already stays as it is, and so does the end of a context.
func explain(err error) error {
	if err == nil || ClassOf(err) != 0 || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	for _, c := range causes {
		if errors.Is(err, c.errno) {
			return &localError{c.sentinel, c.advice, err}
		}
	}
	return &localError{cause: err}
}

// failed returns the *Error of a step; nil when err is nil.
func failed(step, path string, err error) error {
	return failedIn(Unchanged, step, path, err)
}

func failedIn(s State, step, path string, err error) error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) { // the inner step says it better
		if s != Unchanged {
			e.State = s
		}
		return err
	}
	return &Error{Step: step, Path: path, State: s, Err: explain(err)}
}
