// Package config loads the settings: defaults from configs/triprize.yaml, a file, the
// environment.
//
// [Load] returns [Settings]. All defaults are in the embedded YAML file. A setting that is unknown, of the
// wrong type or out of range is rejected with its name and the reason, and the process does not start.
package config
