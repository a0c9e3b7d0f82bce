package openapi

import (
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// plain follows references. It returns nil for a schema that is a combination of
// others: nothing is known of it here.
func plain(schema *jsonschema.Schema) *jsonschema.Schema {
	for schema != nil && schema.Ref != nil {
		schema = schema.Ref
	}
	if schema == nil || schema.AllOf != nil || schema.AnyOf != nil || schema.OneOf != nil || schema.Not != nil || schema.If != nil {
		return nil
	}
	return schema
}

// elements returns the schema of an array's elements, if it has one.
func elements(schema *jsonschema.Schema) *jsonschema.Schema {
	if schema == nil {
		return nil
	}
	return schema.Items2020
}

// propertyOf returns the schema of an object's field, and whether it may have it.
func propertyOf(schema *jsonschema.Schema, name string) (property *jsonschema.Schema, known bool) {
	if schema == nil {
		return nil, true
	}
	if property, known = schema.Properties[name]; known {
		return property, true
	}
	return nil, schema.AdditionalProperties != false
}

// omitNulls takes the fields out of a value that are null and may be left out, and
// tells whether there were any.
func omitNulls(schema *jsonschema.Schema, value any) (found bool) {
	if schema = plain(schema); schema == nil {
		return false
	}
	switch v := value.(type) {
	case []any:
		for _, element := range v {
			found = omitNulls(schema.Items2020, element) || found
		}
	case map[string]any:
		for name, field := range v {
			switch property, known := schema.Properties[name]; {
			case known && field == nil && !slices.Contains(schema.Required, name):
				delete(v, name)
				found = true
			case known:
				found = omitNulls(property, field) || found
			}
		}
	}
	return found
}
