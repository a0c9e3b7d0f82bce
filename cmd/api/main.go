// Command api serves the HTTP API of Triprize: it accepts work as jobs and
// answers what can be read. Run as many as you like.
package main

import (
	"flag"

	"triprize/internal/entry/boot"
)

func main() { boot.Main("api", flag.NewFlagSet("api", flag.ExitOnError), boot.API) }
