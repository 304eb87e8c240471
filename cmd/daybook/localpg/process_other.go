//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package localpg

import (
	"context"
	"os/exec"
)

// Everything here stands in for what exists only on Unix. Start and Attach ask supported first, so
// none of the rest is ever reached.

const noFollow = 0

type identity struct{}

func supported() error                                              { return ErrUnsupported }
func serverIdentity(Config, string) (*identity, error)              { return nil, ErrUnsupported }
func giveTo(string, *identity) error                                { return ErrUnsupported }
func giveTree(string, *identity) error                              { return ErrUnsupported }
func reachable(string, *identity) error                             { return ErrUnsupported }
func isPostgres(int) bool                                           { return false }
func servesFrom(int, string) bool                                   { return false }
func signalStop(int, StopMode) error                                { return ErrUnsupported }
func killServer(int, string) error                                  { return ErrUnsupported }
func setAttributes(*exec.Cmd, *identity, bool)                      {}
func lockFolder(context.Context, string) (unlock func(), err error) { return nil, ErrUnsupported }
