// Command triprize-dev is the developer's tool; see package devkit.
package main

import (
	"os"

	"triprize/devkit"
)

func main() { os.Exit(devkit.Run(os.Args[1:], os.Stdout, os.Stderr)) }
