package main

import (
	"bytes"
	"os"
	"testing"
)

// The programs run in the folder of their module, the tests in that of their package.
func TestTheCollectionIsThatOfTheContractAndTheScenarios(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../" + contract)
	if err != nil {
		t.Fatal(err)
	}
	want, err := generate(source)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../" + collection)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/postman is not current: run make generate")
	}
}
