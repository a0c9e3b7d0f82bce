package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"triprize.example/client"
)

// view is what a person reads of a document: first the paths of members, then for each list its path and those of columns.
type view []string

// amounts are the members that have minor units of the nearest currency around them.
var amounts = []string{"amount", "amount_refunded", "available", "balance", "held", "price"}

func (v view) write(out io.Writer, document map[string]any) {
	lines := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, path := range strings.Fields(v[0]) {
		if text := textAt(document, path, ""); text != "" {
			fmt.Fprintf(lines, "%s\t%s\n", titles.Replace(path), cell(text))
		}
	}
	_ = lines.Flush() // to a terminal, as below
	for _, list := range v[1:] {
		name, columns, _ := strings.Cut(list, " ")
		found, currency := valueAt(document, name, "")
		rows, ok := found.([]any)
		if !ok {
			continue
		}
		say(out, "\n%s: %d", titles.Replace(name), len(rows))
		t := table[any]{head: strings.ToUpper(titles.Replace(strings.ReplaceAll(columns, " ", "\t"))), row: func(row any) string {
			object, _ := row.(map[string]any)
			var values []any
			for _, path := range strings.Fields(columns) {
				values = append(values, textAt(object, path, currency))
			}
			return cells(values...)
		}}
		if len(rows) > 0 {
			_ = t.print(out, rows, false)
		}
	}
}

var titles = strings.NewReplacer(".", " ", "_", " ")

// valueAt returns the value at a path, nil if there is none, and the nearest currency around it.
func valueAt(object map[string]any, path, currency string) (any, string) {
	if own, ok := object["currency"].(string); ok {
		currency = own
	}
	name, rest, deeper := strings.Cut(path, ".")
	if inner, _ := object[name].(map[string]any); deeper {
		return valueAt(inner, rest, currency)
	}
	return object[name], currency
}

func textAt(object map[string]any, path, currency string) string {
	value, currency := valueAt(object, path, currency)
	if value == nil {
		return ""
	}
	number, _ := value.(json.Number)
	if amount, err := number.Int64(); err == nil && slices.Contains(amounts, path[strings.LastIndexByte(path, '.')+1:]) {
		return amountOf(amount, currency)
	}
	if text, ok := value.(string); ok {
		return text
	}
	text, _ := json.Marshal(value) // it was JSON
	return string(text)
}

// answers keeps the documents of an api as they are: where they have null, the client's types have zeros.
type answers []*bytes.Buffer

// RoundTrip makes answers an http.RoundTripper.
func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && response.StatusCode == http.StatusOK {
		document, body := new(bytes.Buffer), response.Body
		*a, response.Body = append(*a, document), struct {
			io.Reader
			io.Closer
		}{io.TeeReader(body, document), body}
	}
	return response, err
}

// reader makes c a command that makes calls, and shows the documents of the answers. As JSON, the first documents are one.
func reader(c *cobra.Command, views []view, asOne int, call func(ctx context.Context, api *client.Client, arg string) error) *cobra.Command {
	asJSON, got := c.Flags().Bool("json", false, "print JSON"), new(answers)
	soon := client.WithRetry(client.RetryPolicy{Attempts: 3}) // a person waits, perhaps before an outage
	return onAPI(c, func(cmd *cobra.Command, args []string, api *client.Client) error {
		err, out := call(cmd.Context(), api, strings.Join(args, "")), cmd.OutOrStdout()
		if _, decided := errors.AsType[*statusError](err); err != nil && !decided {
			return err
		}
		all := make(map[string]any)
		for i, body := range *got {
			document, decoder := make(map[string]any), json.NewDecoder(body)
			decoder.UseNumber() // a float has no 53rd bit
			err = cmp.Or(decoder.Decode(&document), err)
			if !*asJSON {
				views[i].write(out, document)
			} else if i < asOne {
				maps.Copy(all, document)
			}
		}
		if *asJSON {
			delete(all, "next_cursor") // of one of the lists
			err = cmp.Or(json.NewEncoder(out).Encode(all), err)
		}
		return err
	}, soon, client.WithHTTPClient(&http.Client{Transport: got}))
}
