// Package firewall is what the controller is told and what it tells: spec, status
// and events of one firewall, behind the one seam [Store].
//
// The fields are those of the Firewall resource (firewall.metal-stack.io/v2) as
// far as the example has a use for them. [File] keeps them in files; a Kubernetes
// client takes its place without a change to the controller.
package firewall

import (
	"context"
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

	// EgressRules and IPv4RuleFile stand for the rest of the work.
	EgressRules  []EgressRule `json:"egressRules,omitempty"`
	IPv4RuleFile string       `json:"ipv4RuleFile,omitempty"` // where the rules go; empty: nowhere
}

// EgressRule gives packets that leave a network one of these source addresses.
type EgressRule struct {
	NetworkID string   `json:"networkID"`
	IPs       []string `json:"ips"`
}

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
	Rejected      []Rejected `json:"rejected,omitempty"`      // will not be installed
	Protection    string     `json:"protection,omitempty"`    // what brings the predecessor of a broken version back
	RestartNeeded bool       `json:"restartneeded,omitempty"` // the file is another one than the process
}

// Rejected is a version that somebody went back from.
type Rejected struct {
	Version string `json:"version,omitempty"`
	SHA256  string `json:"sha256"`
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
	UpdateFailedTemporary Reason = "UpdateFailedTemporary" // network, server, not published yet: it is tried again
	UpdateRefused         Reason = "UpdateRefused"         // verification, format, limit: somebody has to look
	UpdateFailedLocal     Reason = "UpdateFailedLocal"     // space, permission, lock on this machine
	UpdateRejected        Reason = "UpdateRejected"        // the desired version was left by a roll back
	RolledBack            Reason = "RolledBack"            // this is the version that somebody went back to
	Replaced              Reason = "Replaced"              // the program file was replaced from outside, the process ends for it
	SpecInvalid           Reason = "SpecInvalid"           // the spec, or the URL in it, can't be used
	WorkFailed            Reason = "WorkFailed"            // the rest of the work
)

// Warning reports whether somebody should look.
func (r Reason) Warning() bool { return r != Updated && r != Replaced }

// Store is where spec, status and events are: one firewall's.
type Store interface {
	// Spec returns the spec as it is now. A spec that can't be read or understood
	// is an error; the controller then goes on with the one that it had.
	Spec(ctx context.Context) (Spec, error)

	// Changes returns a channel that yields after a change of the spec (its
	// generation, in Kubernetes), several changes once. A change after the call is
	// never missed. It yields nothing after the end of ctx.
	Changes(ctx context.Context) <-chan struct{}

	SetStatus(ctx context.Context, s Status) error
	Emit(ctx context.Context, e Event) error
}
