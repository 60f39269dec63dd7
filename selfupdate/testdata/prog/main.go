// Prog is the program that the tests update: it prints its version, or waits.
package main

import (
	"fmt"
	"os"
	"time"
)

var version = "unset"

func main() {
	if len(os.Args) > 1 && os.Args[1] == "sleep" {
		fmt.Println("started", version)
		time.Sleep(time.Minute)
	}
	fmt.Println(version)
}
