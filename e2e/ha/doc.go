// Package ha runs the real binaries and their servers on several hosts, which are network namespaces of
// one machine: Redis under Sentinel and as a Cluster, Postgres under Patroni with etcd behind haproxy.
// Its tests kill primaries and cut networks in the middle of sales and draws. Run it with: make ha
//
// With make compose, a sale goes on while the containers of docker-compose.yml are restarted and replaced.
package ha
