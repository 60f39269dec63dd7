// Service is the program that the tests put on trial: "start" begins, "confirm"
// begins and confirms, "expire" begins and waits for the end of its time.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

var version = "version-0"

func main() {
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Println(version, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, command string) error {
	u, err := selfupdate.New(selfupdate.Config{Current: version, Trust: selfupdate.UnsignedChecksum("a test"), Trial: &selfupdate.Trial{}})
	if err != nil {
		return err
	}
	start, err := u.Begin(ctx)
	if err != nil {
		return err
	}
	text, err := json.Marshal(start)
	if err != nil {
		return err
	}
	fmt.Println(version, string(text))
	switch command {
	case "confirm":
		return u.Confirm(ctx)
	case "expire":
		if err := u.Guard(ctx); !errors.Is(err, selfupdate.ErrExpired) {
			return fmt.Errorf("Guard: %w", err)
		}
	}
	return nil
}
