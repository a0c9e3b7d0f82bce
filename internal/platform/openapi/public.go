package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Public returns a document as clients get it, as JSON: without what only our generators
// of code read (x-go-*, x-order), and in the order in which people should read it. That is
// the order of the source; the properties of a schema are sorted by x-order, and those
// without one follow.
func Public(source []byte) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(source, &document); err != nil {
		return nil, fmt.Errorf("openapi.Public: %w", err)
	}
	var text bytes.Buffer
	if err := writeJSON(&text, &document); err != nil {
		return nil, fmt.Errorf("openapi.Public: %w", err)
	}
	return text.Bytes(), nil
}

// member is a name of an object with its value.
type member struct{ name, value *yaml.Node }

// writeJSON writes a node and what is below it.
func writeJSON(text *bytes.Buffer, n *yaml.Node) error {
	switch n.Kind {
	case yaml.DocumentNode:
		return writeJSON(text, n.Content[0])
	case yaml.AliasNode:
		return writeJSON(text, n.Alias)
	case yaml.MappingNode:
		return writeList(text, '{', '}', publicMembers(n), func(m member) error {
			if err := writeScalar(text, m.name.Value); err != nil {
				return err
			}
			text.WriteByte(':')
			if m.name.Value == "properties" {
				sortProperties(m.value)
			}
			return writeJSON(text, m.value)
		})
	case yaml.SequenceNode:
		return writeList(text, '[', ']', n.Content, func(element *yaml.Node) error { return writeJSON(text, element) })
	default:
		var value any
		if n.Tag == "!!timestamp" { // a text that only YAML takes for a time
			return writeScalar(text, n.Value)
		}
		if err := n.Decode(&value); err != nil {
			return err
		}
		return writeScalar(text, value)
	}
}

func writeList[T any](text *bytes.Buffer, begin, end byte, elements []T, write func(T) error) error {
	text.WriteByte(begin)
	for i, element := range elements {
		if i > 0 {
			text.WriteByte(',')
		}
		if err := write(element); err != nil {
			return err
		}
	}
	text.WriteByte(end)
	return nil
}

func writeScalar(text *bytes.Buffer, value any) error {
	encoded, err := json.Marshal(value)
	text.Write(encoded)
	return err
}

// publicMembers returns the members of an object that are for clients.
func publicMembers(n *yaml.Node) (members []member) {
	for pair := range slices.Chunk(n.Content, 2) {
		if name := pair[0].Value; !strings.HasPrefix(name, "x-go-") && name != "x-order" {
			members = append(members, member{pair[0], pair[1]})
		}
	}
	return members
}

// sortProperties sorts the properties of a schema by their x-order.
func sortProperties(n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		return // a property that is named so
	}
	pairs := slices.Collect(slices.Chunk(slices.Clone(n.Content), 2))
	slices.SortStableFunc(pairs, func(a, b []*yaml.Node) int { return orderOf(a[1]) - orderOf(b[1]) })
	n.Content = slices.Concat(pairs...)
}

// orderOf returns the x-order of a property.
func orderOf(property *yaml.Node) int {
	const last = 1 << 30
	if property.Kind != yaml.MappingNode {
		return last
	}
	for pair := range slices.Chunk(property.Content, 2) {
		if pair[0].Value == "x-order" {
			if order, err := strconv.Atoi(pair[1].Value); err == nil {
				return order
			}
		}
	}
	return last
}
