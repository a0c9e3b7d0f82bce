// Command triprize is the operator's tool; see package cli.
package main

import (
	"os"

	"triprize/internal/entry/cli"
)

func main() { os.Exit(cli.Run(os.Args[1:], os.Stdout, os.Stderr)) }
