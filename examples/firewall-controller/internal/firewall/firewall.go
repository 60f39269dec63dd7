// Package firewall is what the controller is told and what it tells: spec, status
// and events of one firewall, behind the one seam [Store].
//
// The fields are those of the Firewall resource (firewall.metal-stack.io/v2) as
// far as the example has a use for them. [File] keeps them in files; a Kubernetes
// client takes its place without a change to the controller.
package firewall

import (
	"context"
	"errors"
	"time"
)

// Spec is what the firewall shall be. The controller never writes it.
type Spec struct {
	// ControllerVersion is the version that the controller shall be: an opaque
	// string, an older one too.
	ControllerVersion string `json:"controllerVersion,omitempty"`
	// ControllerURL is where that version is; its checksum is at the same URL with
	// ".sha256" behind it. Empty: the controller stays what it is.
	ControllerURL string `json:"controllerURL,omitempty"`

	// Retry is the annotation [RetryAnnotation] of the resource: a new value lifts
	// what was rejected, once.
	Retry string `json:"-"`

	// EgressRules and IPv4RuleFile stand for the rest of the work.
	EgressRules  []EgressRule `json:"egressRules,omitempty"`
	IPv4RuleFile string       `json:"ipv4RuleFile,omitempty"` // where the rules go; empty: nowhere
}

// EgressRule gives packets that leave a network one of these source addresses.
type EgressRule struct {
	NetworkID string   `json:"networkID"`
	IPs       []string `json:"ips"`
}

// RetryAnnotation is set by an operator who wants a rejected version tried again.
const RetryAnnotation = "firewall.metal-stack.io/controller-retry"

// Status is written for people after each reconcile. Nothing reads it back.
type Status struct {
	ActualVersion string     `json:"actualversion"`          // of the process that writes this
	ActualSHA256  string     `json:"actualsha256,omitempty"` // of its file
	LastVersion   string     `json:"lastversion,omitempty"`  // what "selfupdate rollback" would bring
	NextVersion   string     `json:"nextversion,omitempty"`  // the desired one, when it is not the actual one
	Message       string     `json:"message,omitempty"`      // why it is not, or what else is wrong
	LastReconcile time.Time  `json:"lastreconcile"`          // wall clock
	Reconciles    int        `json:"reconciles"`             // of this process
	PID           int        `json:"pid"`
	RulesInForce  int        `json:"rulesinforce"`            // of the egress rules
	LastOutcome   string     `json:"lastoutcome,omitempty"`   // the last change of the program file
	Trial         *Trial     `json:"trial,omitempty"`         // the one that goes on
	Rejected      []Rejected `json:"rejected,omitempty"`      // versions that failed here
	Protection    string     `json:"protection,omitempty"`    // what brings the predecessor of a broken version back
	RestartNeeded bool       `json:"restartneeded,omitempty"` // the file is another one than the process
}

// Trial is how far a version is that has yet to confirm itself.
type Trial struct {
	Version  string   `json:"version"`
	Starts   string   `json:"starts"`             // "1 of 3"
	Deadline string   `json:"deadline"`           // from each start
	Failures []string `json:"failures,omitempty"` // how earlier starts ended
	Rollback string   `json:"rollback"`           // the command that ends it
}

// Rejected is a version that was left because it failed, or that somebody went
// back from.
type Rejected struct {
	Version string `json:"version,omitempty"`
	SHA256  string `json:"sha256"`
	Class   string `json:"class"`   // exec, crash, hang, unhealthy or manual
	Verdict string `json:"verdict"` // guilty and manual: not installed again; else it may be tried again
	Reason  string `json:"reason,omitempty"`
	Clear   string `json:"clear"` // the command that allows it again
}

// Event is something that happened, as an event of the resource in Kubernetes.
type Event struct {
	Time    time.Time `json:"time"`
	Type    string    `json:"type"` // Normal or Warning
	Reason  Reason    `json:"reason"`
	Message string    `json:"message"`
	Version string    `json:"version"` // of the controller that says so
	PID     int       `json:"pid"`
}

// Reason is an event's reason: one word for machines.
type Reason string

// The reasons. That nothing had to be done is no event.
const (
	Updated               Reason = "Updated"               // another version is installed, the process ends for it
	OnTrial               Reason = "OnTrial"               // this version has yet to confirm itself
	Confirmed             Reason = "Confirmed"             // and has: nothing goes back by itself any more
	UpdateFailedTemporary Reason = "UpdateFailedTemporary" // network, server, not published yet: it is tried again
	UpdateRefused         Reason = "UpdateRefused"         // verification, format, limit: somebody has to look
	UpdateFailedLocal     Reason = "UpdateFailedLocal"     // space, permission, lock on this machine
	UpdateRejected        Reason = "UpdateRejected"        // the desired version failed here, or somebody went back from it
	UpdateHeldBack        Reason = "UpdateHeldBack"        // it failed or was refused before, and is tried again later
	Allowed               Reason = "Allowed"               // a rejection was lifted by the retry annotation
	RolledBack            Reason = "RolledBack"            // this is the version that came back
	Replaced              Reason = "Replaced"              // the program file was replaced from outside, the process ends for it
	SpecInvalid           Reason = "SpecInvalid"           // the spec, or the URL in it, can't be used
	SpecUnread            Reason = "SpecUnread"            // the API does not answer, or there is no spec
	WorkFailed            Reason = "WorkFailed"            // the rest of the work
)

// Warning reports whether somebody should look.
func (r Reason) Warning() bool {
	switch r {
	case Updated, OnTrial, Confirmed, Allowed, Replaced:
		return false
	}
	return true
}

// ErrInvalid says that the spec was read and makes no sense.
var ErrInvalid = errors.New("malformed spec")

// Store is where spec, status and events are: one firewall's.
type Store interface {
	// Spec returns the spec as it is now. One that can't be read is an error, and one
	// that can't be understood is [ErrInvalid]; the controller then goes on with the one
	// that it had.
	Spec(ctx context.Context) (Spec, error)

	// Changes returns a channel that yields after a change of the spec (its
	// generation, in Kubernetes), several changes once. A change after the call is
	// never missed. It yields nothing after the end of ctx.
	Changes(ctx context.Context) <-chan struct{}

	SetStatus(ctx context.Context, s Status) error
	Emit(ctx context.Context, e Event) error
}
