package httpapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/resource"
)

// notInAnExample are the codes that no example of the contract shows, and why.
var notInAnExample = map[fault.Code]string{
	fault.MethodNotAllowed: "framework", // of a path that the contract has with another method
	fault.RequestTimeout:   "framework", // before there is an operation
	fault.HeadersTooLarge:  "framework",
	fault.LengthRequired:   "framework",

	fault.PaymentDeclined:    "job",
	fault.PaymentRefused:     "job",
	fault.PaymentNotReceived: "job",
	fault.PurchaseCancelled:  "job",
	fault.PurchaseDisputed:   "job",
	fault.NotSoldOut:         "job", // named in the description of the operation that asks for the job
	fault.ReservationExpired: "job",
}

// exampleProblem is a problem document in an example of the contract.
type exampleProblem struct {
	at                string
	name              string // of the example
	code, title, kind string
	status            float64
}

// exampleProblems finds the problem documents in a part of the contract: objects
// with a code, a title and a status.
func exampleProblems(at, name string, part any) (found []exampleProblem) {
	switch part := part.(type) {
	case map[string]any:
		code, isCode := part["code"].(string)
		title, isTitle := part["title"].(string)
		if isCode && isTitle {
			status, _ := part["status"].(float64)
			kind, _ := part["type"].(string)
			found = append(found, exampleProblem{at: at, name: name, code: code, title: title, kind: kind, status: status})
		}
		for key, value := range part {
			inner := name
			if key == "value" {
				inner = at[strings.LastIndex(at, "/")+1:]
			}
			found = append(found, exampleProblems(at+"/"+key, inner, value)...)
		}
	case []any:
		for i, value := range part {
			found = append(found, exampleProblems(fmt.Sprint(at, "/", i), name, value)...)
		}
	}
	return found
}

// served is the contract as clients get it.
func served(t *testing.T) (root map[string]any, text string) {
	t.Helper()
	document, err := LoadContract()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(document.JSON, &root); err != nil {
		t.Fatal(err)
	}
	return root, string(document.JSON)
}

// The examples have what answers have, are found by their codes, and stand under their status. Each code is in one, or
// has an excuse.
func TestTheProblemsOfTheContractAreThoseOfTheProgram(t *testing.T) {
	t.Parallel()
	root, text := served(t)
	shown := make(map[fault.Code]bool)
	for _, p := range exampleProblems("", "", root) {
		code := fault.Code(p.code)
		if shown[code] = true; !code.Known() {
			t.Errorf("%s: nothing has the code %q", p.at, p.code)
			continue
		}
		want := resource.Problem(fault.New(code, "in the words of the example"))
		if p.title != want.Title || int(p.status) != want.Status || p.kind != want.Type {
			t.Errorf("%s: %s, %d %q; answers have %s, %d %q", p.at, p.kind, int(p.status), p.title, want.Type, want.Status, want.Title)
		}
		if strings.Contains(p.at, "/responses/") && p.name != p.code { // by the name it is found
			t.Errorf("%s: the example of %q is named %q", p.at, p.code, p.name)
		}
	}
	for _, code := range fault.Codes() {
		why, excused := notInAnExample[code]
		if shown[code] == excused || why == "job" && !strings.Contains(text, "`"+string(code)+"`") {
			t.Errorf("%s: in an example of the contract %t, excused %t, or not named in its descriptions", code, shown[code], excused)
		}
	}
	shared := root["components"].(map[string]any)["responses"].(map[string]any)
	for path, item := range root["paths"].(map[string]any) {
		for method, operation := range item.(map[string]any) {
			operation, ok := operation.(map[string]any)
			if !ok {
				continue // parameters of all
			}
			for status, response := range operation["responses"].(map[string]any) {
				response := response.(map[string]any)
				if reference, ok := response["$ref"].(string); ok {
					response = shared[reference[strings.LastIndex(reference, "/")+1:]].(map[string]any)
				}
				content, _ := response["content"].(map[string]any)
				for _, p := range exampleProblems("", "", content["application/problem+json"]) {
					if fmt.Sprint(p.status) != status {
						t.Errorf("%s %s: %s has the status %v and stands under %s", method, path, p.code, p.status, status)
					}
				}
			}
		}
	}
}
