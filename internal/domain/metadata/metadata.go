// Package metadata has the key-value pairs that apps attach to resources, and their limits.
//
// They are stored and returned unchanged. No rule, proof or draw depends on them. The tables have a higher limit.
package metadata

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The limits of a Map.
const (
	MaxPairs = 20
	MaxKey   = 40   // characters of a key
	MaxValue = 200  // characters of a value
	MaxBytes = 2048 // of all keys and values together, in UTF-8
)

// Map is the metadata of one resource. Nil and empty are equal.
type Map map[string]string

// Flaw is a fault of a Map.
type Flaw struct {
	Key    string // of the pair at fault; with Whole: none
	Whole  bool   // the Map as a whole is at fault
	Detail string
}

// Check returns the flaws by key. It checks the total size only if all pairs are valid.
func (m Map) Check() (flaws []Flaw) {
	if len(m) > MaxPairs {
		return []Flaw{{Whole: true, Detail: fmt.Sprintf("must have at most %d pairs", MaxPairs)}}
	}
	bytes := 0
	for _, key := range slices.Sorted(maps.Keys(m)) {
		value := m[key]
		bytes += len(key) + len(value)
		if detail := checkPair(key, value); detail != "" {
			flaws = append(flaws, Flaw{Key: key, Detail: detail})
		}
	}
	if len(flaws) == 0 && bytes > MaxBytes {
		flaws = append(flaws, Flaw{Whole: true, Detail: fmt.Sprintf("must have at most %d bytes in keys and values together; it has %d", MaxBytes, bytes)})
	}
	return flaws
}

func checkPair(key, value string) string {
	switch n := utf8.RuneCountInString(key); {
	case n < 1 || n > MaxKey:
		return fmt.Sprintf("must have a key of 1 to %d characters", MaxKey)
	case utf8.RuneCountInString(value) > MaxValue:
		return fmt.Sprintf("must have at most %d characters", MaxValue)
	case !plain(key):
		return "must have a key without control characters, in UTF-8"
	case !plain(value):
		return "must be without control characters, in UTF-8"
	}
	return ""
}

func plain(text string) bool {
	return utf8.ValidString(text) && strings.IndexFunc(text, unicode.IsControl) < 0
}

// Text returns the Map as JSON for the tables, or nil when it is empty.
func (m Map) Text() []byte {
	if len(m) == 0 {
		return nil
	}
	text, _ := json.Marshal(m) // strings are always JSON
	return text
}
