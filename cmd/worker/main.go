// Command worker settles jobs: it sells positions and draws prizes. Run as many
// as you like; they do not fight each other.
package main

import (
	"flag"

	"triprize/internal/entry/boot"
)

func main() { boot.Main("worker", flag.NewFlagSet("worker", flag.ExitOnError), boot.Worker) }
