package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
)

// page is what the reader sees. The story and the subscriber write to it at the same time, a line each.
type page struct {
	mu  sync.Mutex
	out io.Writer
}

func (p *page) printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, format+"\n", args...)
}

// chapter begins a part of the story: its title and, in a sentence or two, what happens in it.
func (p *page) chapter(number int, title, about string) {
	p.printf("\n%d. %s\n   %s", number, title, strings.ReplaceAll(about, "\n", "\n   "))
}

// line is one thing that happened: who says so, and what.
func (p *page) line(who, format string, args ...any) {
	p.printf("   %-12s %s", who, fmt.Sprintf(format, args...))
}
