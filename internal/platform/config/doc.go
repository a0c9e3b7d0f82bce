// Package config loads the settings: defaults from configs/triprize.yaml, a file, the
// environment.
//
// [Load] returns [Settings]. The embedded YAML file is the only place for defaults. A
// setting that is unknown, of the wrong type or out of bounds is refused with its name and
// the reason, and the process does not start.
package config
