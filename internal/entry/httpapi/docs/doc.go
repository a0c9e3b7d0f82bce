// Package docs has the pages for people: the contract, what problems mean, the check of a draw.
//
// They load nothing from other servers, and a crowd that reads them takes little.
package docs
