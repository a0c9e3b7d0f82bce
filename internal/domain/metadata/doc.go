// Package metadata has the pairs of strings that apps write on resources, and their
// bounds.
//
// They are kept and returned as they were. Nothing acts on them, and no rules, proof or
// draw has them. The tables have a wider bound of their own.
package metadata
