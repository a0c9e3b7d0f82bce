package openapi_test

import (
	"testing"

	"triprize/internal/platform/openapi"
)

func TestThePublicDocumentHasNothingOfOurGeneratorsAndTheWantedOrder(t *testing.T) {
	t.Parallel()
	const source = `
info: {version: "1", title: T}
paths: {}
components:
  schemas:
    Thing:
      x-go-type: string
      properties:
        last: {type: string}
        second: {type: [string, "null"], x-order: 2, x-go-type-skip-optional-pointer: true}
        at: {example: 2026-03-25, enum: [1, 1.5, true, null]}
        first: {$ref: "#/a", x-order: 1}
      x-roles: [app]
`
	const want = `{"info":{"version":"1","title":"T"},"paths":{},"components":{"schemas":{"Thing":{"properties":{` +
		`"first":{"$ref":"#/a"},"second":{"type":["string","null"]},"last":{"type":"string"},"at":{"example":"2026-03-25","enum":[1,1.5,true,null]}},"x-roles":["app"]}}}}`
	got, err := openapi.Public([]byte(source))
	if err != nil || string(got) != want {
		t.Errorf("%s, %v, want\n%s", got, err, want)
	}
	if _, err := openapi.Public([]byte("a: [")); err == nil {
		t.Error("what is no YAML is taken")
	}
}
