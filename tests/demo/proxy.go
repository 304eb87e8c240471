package main

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// proxy passes TCP connections on to the shop, and cuts those it is told to at the worst moment: the shop has begun to
// answer, so it has committed, and nothing of the answer has reached the client.
type proxy struct {
	url      string
	target   string
	listener net.Listener
	// cuts is how many answers are still to be lost, and lost how many were.
	cuts, lost atomic.Int64
	open       sync.WaitGroup
}

func openProxy(ctx context.Context, target string) (*proxy, error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{url: "http://" + listener.Addr().String(), target: target, listener: listener}
	p.open.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // closed
			}
			p.open.Go(func() { p.serve(client) })
		}
	})
	return p, nil
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.open.Wait()
}

func (p *proxy) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	upstream, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer func() { _ = upstream.Close() }()
	go func() { _, _ = io.Copy(upstream, client) }() // ends when upstream is closed

	first := make([]byte, 1)
	if _, err := io.ReadFull(upstream, first); err != nil {
		return
	}
	if p.cuts.Add(-1) >= 0 {
		p.lost.Add(1)
		// A reset, as when a machine between the two goes down.
		_ = client.(*net.TCPConn).SetLinger(0)
		return
	}
	if _, err := client.Write(first); err == nil {
		_, _ = io.Copy(client, upstream)
	}
}
