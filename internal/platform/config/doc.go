// Package config loads the settings: the defaults embedded from
// configs/triprize.yaml, then a file, then TRIPRIZE_… environment variables.
//
// [Load] returns [Settings]. The embedded YAML file is the only place for
// defaults. A setting that is unknown, of the wrong type or out of bounds is
// refused with its name and the reason; a process never starts with settings it
// does not understand.
package config
