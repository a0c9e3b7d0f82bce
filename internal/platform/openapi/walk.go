package openapi

import (
	"net/http"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// single follows references. It returns nil for a schema that is a combination of
// others: nothing is known of it here. One that only says which of its fields exclude each
// other is none, see [ways].
func single(schema *jsonschema.Schema) *jsonschema.Schema {
	for schema != nil && schema.Ref != nil {
		schema = schema.Ref
	}
	if schema == nil || schema.AllOf != nil || schema.AnyOf != nil || schema.OneOf != nil || schema.Not != nil && ways(schema) == nil || schema.If != nil {
		return nil
	}
	return schema
}

// shellsOf returns, for a schema and all below it, what it says of a value without the
// value's elements and fields.
func shellsOf(schema *jsonschema.Schema) map[*jsonschema.Schema]*jsonschema.Schema {
	shells := make(map[*jsonschema.Schema]*jsonschema.Schema)
	var add func(schema *jsonschema.Schema)
	add = func(schema *jsonschema.Schema) {
		if schema = single(schema); schema == nil || shells[schema] != nil {
			return
		}
		shell := *schema
		shell.Items2020, shell.Properties, shell.AdditionalProperties = nil, nil, nil // fields that are not known are refused with the bounds
		shell.PropertyNames, shell.DependentRequired, shell.Not = nil, nil, nil       // checkFields has words for these
		shells[schema] = &shell
		add(schema.Items2020)
		for _, property := range schema.Properties {
			add(property)
		}
		add(others(schema))
	}
	add(schema)
	return shells
}

// elements returns the schema of an array's elements, if it has one.
func elements(schema *jsonschema.Schema) *jsonschema.Schema {
	if schema == nil {
		return nil
	}
	return schema.Items2020
}

// ways returns the fields of which an object must have exactly one, when its schema says so
// in the form not: {not: {oneOf: [{required: [a]}, {required: [b]}]}}. For generators of
// types that is no combination; a bare oneOf would be.
func ways(schema *jsonschema.Schema) (fields []string) {
	if schema.Not == nil || schema.Not.Not == nil {
		return nil
	}
	for _, way := range schema.Not.Not.OneOf {
		if len(way.Required) != 1 {
			return nil
		}
		fields = append(fields, way.Required[0])
	}
	return fields
}

// others returns the schema of those fields of an object that it does not name, if it has one.
func others(schema *jsonschema.Schema) *jsonschema.Schema {
	found, _ := schema.AdditionalProperties.(*jsonschema.Schema)
	return found
}

// propertyOf returns the schema of an object's field, and whether it may have it.
func propertyOf(schema *jsonschema.Schema, name string) (property *jsonschema.Schema, known bool) {
	if schema == nil {
		return nil, true
	}
	if property, known = schema.Properties[name]; known {
		return property, true
	}
	return others(schema), schema.AdditionalProperties != false
}

// settle takes the fields out of a value that are null and may be left out, except in a PATCH, writes
// texts as they are spelled, and tells whether it has changed anything.
func (o *Operation) settle(schema *jsonschema.Schema, value *any) (changed bool) {
	if schema = single(schema); schema == nil {
		return false
	}
	switch v := (*value).(type) {
	case string:
		one := spelled(schema, v)
		*value, changed = one, one != v
	case []any:
		for i := range v {
			changed = o.settle(schema.Items2020, &v[i]) || changed
		}
	case map[string]any:
		for name, field := range v {
			switch property, known := schema.Properties[name]; {
			case known && field == nil && o.Method != http.MethodPatch && !slices.Contains(schema.Required, name):
				delete(v, name)
				changed = true
			case known && o.settle(property, &field):
				v[name], changed = field, true
			}
		}
	}
	return changed
}
