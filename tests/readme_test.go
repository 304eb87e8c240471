package tests

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A quoted example stands below a comment that names its file and its function.
var quoted = regexp.MustCompile("(?s)<!-- ([a-z/_]+\\.go): ([A-Za-z_]+) -->\n```go\n(.*?)```")

// The README shows the Examples that run with the tests, and nothing that only looks like them.
func TestReadmeQuotesTheExamples(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	quotes := quoted.FindAllSubmatch(readme, -1)
	if len(quotes) < 3 {
		t.Fatalf("the README quotes %d examples, and there are three uses", len(quotes))
	}
	for _, quote := range quotes {
		file, function, got := string(quote[1]), string(quote[2]), string(quote[3])
		want := exampleBody(t, filepath.Join("..", file), function)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("README and %s in %s differ (-example +README):\n%s", function, file, diff)
		}
	}
}

// exampleBody returns the statements of a function as gofmt writes them, one level to the left, without the Output
// comment's function braces.
func exampleBody(t *testing.T, path, function string) string {
	t.Helper()
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, path, source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, declaration := range parsed.Decls {
		f, ok := declaration.(*ast.FuncDecl)
		if !ok || f.Name.Name != function {
			continue
		}
		body := source[files.Position(f.Body.Lbrace).Offset+1 : files.Position(f.Body.Rbrace).Offset]
		text := strings.ReplaceAll("\n"+string(body), "\n\t", "\n")
		formatted, err := format.Source([]byte(strings.Trim(text, "\n")))
		if err != nil {
			t.Fatal(err)
		}
		return string(bytes.TrimSpace(formatted)) + "\n"
	}
	t.Fatalf("%s has no function %s", path, function)
	return ""
}

// The two commands that the README names are targets of the Makefile, and CI runs what it promises.
func TestReadmeCommandsExist(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`make ([a-z-]+)`").FindAllSubmatch(readme, -1)
	if len(named) == 0 {
		t.Fatal("the README names no make target")
	}
	for _, name := range named {
		target := regexp.MustCompile(`(?m)^` + string(name[1]) + `:`)
		if !target.Match(makefile) {
			t.Errorf("the README names make %s, which the Makefile does not have", name[1])
		}
	}
}
