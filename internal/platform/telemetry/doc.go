// Package telemetry sets up logs and metrics, and serves /healthz, /readyz and /metrics.
package telemetry
