// Package devkit is the command triprize-dev, the developer's tool ([Run]).
//
// It runs a whole system on one machine (dev), one sale (demo), a simulator of Stripe
// (sandbox) and test servers (with-servers), and signs the tokens of users (token). No
// program of an installation links it.
package devkit
