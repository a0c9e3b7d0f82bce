package postgres

import (
	"net"
	"time"

	"github.com/jackc/pgx/v5"
)

// SetTimeout sets how long a transaction waits for permits.
func (g *Gate) SetTimeout(d time.Duration) { g.timeout = d }

// PlanAnew is the hook for connections that are about to be used, SetUserTimeout for sockets.
var PlanAnew, SetUserTimeout = planAnew, setUserTimeout

// DiscardTimeout bounds DISCARD PLANS in pools of Open.
const DiscardTimeout = discardTimeout

// Opened is the hook for new connections.
func (s *Servers) Opened(conn *pgx.Conn) error { return s.opened(conn) }

// AgePlans lets time pass for the plans of a session.
func AgePlans(conn *pgx.Conn, d time.Duration) {
	of := conn.PgConn().CustomData()
	of[plannedAt] = of[plannedAt].(time.Time).Add(-d)
}

// Socket returns the socket of a connection.
func Socket(conn net.Conn) net.Conn {
	if c, ok := conn.(closingConn); ok {
		return c.Conn
	}
	return conn
}

// Timeout is how long a transaction waits for permits.
func (g *Gate) Timeout() time.Duration { return g.timeout }
