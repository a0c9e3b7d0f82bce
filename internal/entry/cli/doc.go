// Package cli is the command triprize, the operator's tool ([Run]).
//
// It tells what is wrong and what happened, migrates the database, manages API keys, audits the data, and
// lists and resolves payments and refunds that wait for an operator. What developers run is package devkit.
package cli
