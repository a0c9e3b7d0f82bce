// Package telemetry sets up logs and metrics, and serves what operators and
// orchestrators ask a process: /healthz (is it running), /readyz (can it do its
// work) and /metrics.
package telemetry
