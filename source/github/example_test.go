package githubsource_test

import (
	"context"
	"log"

	"github.com/metal-stack/selfreconcile/selfupdate"
	githubsource "github.com/metal-stack/selfreconcile/source/github"
)

// A named tag of a public repository costs no API request.
func ExampleNew() {
	gh := githubsource.New("metal-stack", "metalctl")
	rel, err := gh.Release(context.Background(), "v0.18.7")
	if err != nil {
		log.Fatal(err)
	}
	u, err := selfupdate.New(selfupdate.Config{
		Asset: "metalctl-{os}-{arch}",
		Trust: selfupdate.UnsignedChecksum("metalctl publishes checksums only"),
	})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := u.Apply(context.Background(), rel); err != nil {
		log.Print(err)
	}
}
