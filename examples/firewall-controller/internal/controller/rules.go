package controller

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/metal-stack/selfreconcile/examples/firewall-controller/internal/atomicfile"
	"github.com/metal-stack/selfreconcile/examples/firewall-controller/internal/firewall"
)

// applyRules stands for the work of a real controller: it checks and renders the
// rules and puts them where nft would load them from. It returns how many there
// are. After an error those that were in force still are.
func applyRules(spec firewall.Spec) (int, error) {
	rules, err := render(spec.EgressRules)
	if err != nil {
		return 0, err
	}
	if spec.IPv4RuleFile == "" {
		return len(spec.EgressRules), nil
	}
	if old, err := os.ReadFile(spec.IPv4RuleFile); err == nil && bytes.Equal(old, rules) {
		return len(spec.EgressRules), nil
	}
	if err := atomicfile.Write(spec.IPv4RuleFile, rules); err != nil {
		return 0, fmt.Errorf("rules: %w", err)
	}
	return len(spec.EgressRules), nil
}

func render(rules []firewall.EgressRule) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("table ip nat {\n\tchain postrouting {\n\t\ttype nat hook postrouting priority 100;\n")
	for i, r := range rules {
		if r.NetworkID == "" || len(r.IPs) == 0 || strings.ContainsAny(r.NetworkID, "\"\n") {
			return nil, fmt.Errorf("egressRules[%d]: a networkID and ips are needed", i)
		}
		for _, ip := range r.IPs {
			if a, err := netip.ParseAddr(ip); err != nil || !a.Is4() {
				return nil, fmt.Errorf("egressRules[%d]: %q is no IPv4 address", i, ip)
			}
		}
		fmt.Fprintf(&b, "\t\toifname %q snat to %s\n", r.NetworkID, strings.Join(r.IPs, ", "))
	}
	b.WriteString("\t}\n}\n")
	return b.Bytes(), nil
}
