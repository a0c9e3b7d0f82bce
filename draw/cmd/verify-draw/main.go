// Command verify-draw checks the proof of a draw, offline: status 0 when it holds, 1 when it does
// not, 2 when it cannot be read.
package main

import (
	"fmt"
	"os"

	"triprize.example/draw/command"
)

func main() {
	c := command.New("verify-draw")
	c.SilenceUsage, c.SilenceErrors = true, true
	err := c.Execute()
	if err != nil {
		fmt.Fprintln(os.Stderr, "verify-draw:", err)
	}
	os.Exit(command.Status(err))
}
