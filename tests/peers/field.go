package main

import "context"

// peers are the contenders of one case, each with a pool of its own.
type peers struct {
	daybook daybook
	river   riverPeer
	hand    handPeer
}

// withPeers runs work with contenders on new databases.
func (b *Bench) withPeers(ctx context.Context, writers int, work func(f Field, p peers) ([]Row, error)) (rows []Row, err error) {
	err = b.onField(ctx, writers, func(f Field) error {
		p := peers{hand: handPeer{f.Hand}}
		if p.daybook, err = newDaybook(f.Daybook); err != nil {
			return err
		}
		if p.river, err = newRiver(f.River); err != nil {
			return err
		}
		rows, err = work(f, p)
		return err
	})
	return rows, err
}
