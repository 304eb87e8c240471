// Package show writes what the commands found: tables and lines for people, JSON for programs. Whatever came from the
// database is made harmless to a terminal on its way out.
package show
