// Command public writes the contract as clients get it, the document that a server has at
// /openapi.json, to its standard output: generators of clients read it.
package main

import (
	"fmt"
	"os"

	"triprize/api"
	"triprize/internal/platform/openapi"
)

func main() {
	document, err := openapi.Public(api.OpenAPI)
	if err == nil {
		_, err = os.Stdout.Write(append(document, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
