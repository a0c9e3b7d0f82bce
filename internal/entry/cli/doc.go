// Package cli is the command triprize, the operator's tool ([Run]).
//
// It tells what is wrong and what happened, migrates the database, manages API keys and audits the data.
// What developers run is package devkit.
package cli
