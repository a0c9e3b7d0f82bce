// Command breaking compares the breaks of the HTTP contract, as oasdiff finds them, with those that
// api/breaking.yaml lists with their reasons:
//
//	oasdiff breaking -f json BEFORE AFTER | go -C tools run ./breaking
//
// It ends with 1 when a break is not listed, or when an entry is of no break. It prints what is
// missing as the file has it, so that only the reason is to be written.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

// change is what oasdiff says of one break.
type change struct {
	ID, Text, Operation, Path string
}

// entry is a break that is meant, or several: what is left out fits all.
type entry struct {
	ID        string
	Operation string // such as GET /v1/jobs
	Says      string // a part of oasdiff's text
	Reason    string
}

func (e entry) fits(c change) bool {
	return e.ID == c.ID && (e.Operation == "" || e.Operation == c.Operation+" "+c.Path) && strings.Contains(c.Text, e.Says)
}

type list struct {
	Since     string
	Breaks    []entry
	Behaviour []struct{ Operation, Change, Reason string } // for people: no schema shows it
}

func main() {
	file, err := os.ReadFile("../api/breaking.yaml")
	if err == nil {
		err = compare(os.Stdin, file, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func compare(found io.Reader, file []byte, out io.Writer) error {
	var listed list
	decoder := yaml.NewDecoder(bytes.NewReader(file))
	decoder.KnownFields(true)
	if err := decoder.Decode(&listed); err != nil {
		return err
	}
	var changes []change
	if err := json.NewDecoder(found).Decode(&changes); err != nil {
		return fmt.Errorf("what oasdiff says: %w", err)
	}
	used, faults, printed := make([]bool, len(listed.Breaks)), 0, make(map[change]bool)
	for _, c := range changes {
		known := false
		for i, e := range listed.Breaks {
			if e.fits(c) {
				known, used[i] = true, true
			}
		}
		if !known && !printed[c] {
			printed[c] = true
			faults++
			fmt.Fprintf(out, "  - {id: %s, operation: %q, says: %q, reason: }\n", c.ID, c.Operation+" "+c.Path, c.Text)
		}
	}
	for i, e := range listed.Breaks {
		if !used[i] || e.Reason == "" {
			faults++
			fmt.Fprintf(out, "this entry is of no break, or has no reason: %+v\n", e)
		}
	}
	if faults > 0 {
		return fmt.Errorf("the breaks of the contract since %s are not those that are listed: %d differences", listed.Since, faults)
	}
	fmt.Fprintf(out, "the contract has %d breaks since %s, and %d entries give the reasons\n", len(changes), listed.Since, len(listed.Breaks))
	return nil
}
