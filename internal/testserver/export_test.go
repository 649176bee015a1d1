package testserver

import "net"

// LimitConn puts a limit on the server's end of a connection.
func LimitConn(conn net.Conn, limit Limit) net.Conn {
	return newLimitedConn(conn, limit, new(connCounters))
}
