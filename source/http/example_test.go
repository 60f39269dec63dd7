package httpsource_test

import (
	"context"
	"fmt"
	"log"

	"github.com/metal-stack/selfreconcile/selfupdate"
	httpsource "github.com/metal-stack/selfreconcile/source/http"
)

// A bare URL: its checksum file is <url>.sha256. No request is made yet.
func ExampleRelease() {
	rel := httpsource.Release("v2.5.1", "https://images.metal-stack.io/firewall-controller/v2.5.1/firewall-controller")
	fmt.Println(rel.Version, rel.Assets[0].Name)
	// Output: v2.5.1 firewall-controller
}

// An ordered list of mirrors, asked in turn while they don't answer.
func ExampleSource_Template() {
	src, err := httpsource.New(httpsource.Options{}).Template(httpsource.Template{
		Bases: []string{
			"https://images.metal-stack.io/firewall-controller/{version}/{name}",
			"https://mirror.example.com/firewall-controller/{version}/{name}",
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	u, err := selfupdate.New(selfupdate.Config{
		Target: "/usr/local/bin/firewall-controller",
		Asset:  "{name}",
		Trust:  selfupdate.UnsignedChecksum("nothing is signed yet"),
	})
	if err != nil {
		log.Fatal(err)
	}
	rel, err := src.Release(context.Background(), "v2.5.1")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := u.Apply(context.Background(), rel); err != nil {
		log.Print(err)
	}
}
