// Command api serves the HTTP API of Triprize: it accepts work as jobs, runs
// commands and answers reads. Any number of api processes can run.
package main

import (
	"flag"

	"triprize/internal/entry/boot"
	"triprize/internal/entry/httpapi"
)

func main() { boot.Main("api", flag.NewFlagSet("api", flag.ExitOnError), boot.API(httpapi.New)) }
