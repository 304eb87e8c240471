// Package localpg finds PostgreSQL's server binaries on this machine and runs a cluster of its own
// from them, on the loopback interface and as an unprivileged user.
//
// It is public, although it lives with the command, because two programs need it: `daybook dev`,
// which gives a developer a server to try things on, and the tests, which must run where nothing
// has been set up. It is not meant for production: whoever can connect to the loopback interface is
// trusted, as the superuser too.
//
// [Find] looks for the binaries, [Start] makes a cluster where there is none and starts it, or
// attaches to the one that already runs in that folder, and [Attach] only ever attaches.
//
//	server, err := localpg.Start(ctx, localpg.Config{DataDir: "/var/lib/example"})
//	if err != nil {
//		return err
//	}
//	defer server.Stop(context.Background(), localpg.Fast)
//	conn, err := pgx.Connect(ctx, server.URL())
//
// # Life of a server
//
// A server that Start made is tied to the process that started it: on Linux the kernel shuts it
// down when that process dies, however it dies. Elsewhere it has to be stopped. With
// [Config.Detached] it lives on, and any later process finds it again through its folder.
//
// # Root
//
// PostgreSQL refuses to run as root. Started by root, the server runs as [Config.User], the owner
// of an existing cluster, "postgres" or "nobody", whichever comes first, and the data folder is
// given to that user. That user must be able to enter each folder on the way to the data and to the
// binaries; where it can't, Start says which folder is closed.
//
// # Socket
//
// The server also listens on a Unix socket in its data folder, unless that path would be longer
// than the 103 bytes that every system allows, or has a comma or a quote in it: then there is no
// socket, [Server.SocketDir] is empty, and TCP on 127.0.0.1 is the only way in.
//
// # Systems
//
// Linux, macOS and the BSDs. Elsewhere everything compiles and Start returns [ErrUnsupported].
package localpg
