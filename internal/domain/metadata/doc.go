// Package metadata has the key-value pairs that apps attach to resources, and their limits.
//
// They are stored and returned unchanged. No rule, proof or draw depends on them. The tables have a higher limit.
package metadata
