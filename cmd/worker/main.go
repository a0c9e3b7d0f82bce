// Command worker completes jobs: it sells positions, cancels purchases and draws
// prizes. Any number of workers can run.
package main

import (
	"flag"

	"triprize/internal/entry/boot"
)

func main() { boot.Main("worker", flag.NewFlagSet("worker", flag.ExitOnError), boot.Worker) }
