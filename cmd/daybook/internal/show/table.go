package show

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Column is a column of a table.
type Column struct {
	Title string
	// Number aligns to the right.
	Number bool
}

// Table writes a table with a line under its header and nothing around it. Cells are cleaned. A table without rows is
// the line of what it has none of.
func Table(w io.Writer, columns []Column, rows [][]string, none string) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, none)
		return err
	}
	t := table.NewWriter()
	t.SetStyle(plain())
	t.SuppressTrailingSpaces()
	header := make(table.Row, len(columns))
	configs := make([]table.ColumnConfig, len(columns))
	for i, c := range columns {
		header[i] = c.Title
		configs[i] = table.ColumnConfig{Number: i + 1, Align: text.AlignLeft, AlignHeader: text.AlignLeft}
		if c.Number {
			configs[i].Align, configs[i].AlignHeader = text.AlignRight, text.AlignRight
		}
	}
	t.AppendHeader(header)
	t.SetColumnConfigs(configs)
	for _, cells := range rows {
		row := make(table.Row, len(cells))
		for i, cell := range cells {
			row[i] = Clean(cell)
		}
		t.AppendRow(row)
	}
	_, err := fmt.Fprintln(w, t.Render())
	return err
}

func plain() table.Style {
	style := table.StyleLight
	style.Options = table.Options{SeparateColumns: true, SeparateHeader: true}
	style.Format = table.FormatOptions{Header: text.FormatDefault}
	style.Box.PaddingLeft, style.Box.PaddingRight = "", ""
	style.Box.MiddleVertical, style.Box.MiddleSeparator = "  ", "  "
	return style
}

// Pad fills a text up to a width on a terminal, for streams whose rows are not known in advance.
func Pad(s string, width int) string {
	return text.Pad(Clean(s), width, ' ')
}
