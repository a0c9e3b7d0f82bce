// Package response has what the answers to several operations share.
//
// That is entity tags, the results of commands and jobs, pages of lists, event streams, and
// bodies that are sent as slowly as they are read.
package response
